/* What every unit test includes: cmocka with its prerequisites, and the public headers. */
#ifndef HEFT_TESTS_HELPER_H
#define HEFT_TESTS_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "heft/heft.h"

#endif
