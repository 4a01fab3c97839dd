/* Archives of names, for tests of filters. */
#ifndef HEFT_TESTS_HELPER_FILTER_H
#define HEFT_TESTS_HELPER_FILTER_H

#include "helper.h"

/* An archive of U8 tensors with these names; the k-th given holds k % 5 + 1 bytes. */
heft_archive *named_archive(const char *const *names, size_t n);
/* Applies a filter that must succeed. */
heft_filter_result *applied(const heft_archive *archive, const heft_filter *filter);
/* The rule of a name. */
heft_rule rule_of(const heft_archive *archive, const heft_filter_result *result, const char *name);
/* A filter that must be refused: status, and a piece of the message. */
void assert_refused(const heft_archive *archive, const heft_filter *filter, heft_status status, const char *piece);
/* Over all rules, tensors and bytes are those of the files; ids, rules and sums agree. */
void assert_accounts(const heft_archive *archive, const heft_filter_result *result);

#endif
