/* api: what the public functions share. */
#ifndef HEFT_API_API_H
#define HEFT_API_API_H

#include "base/options.h"

#endif
