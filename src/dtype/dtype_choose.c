/* dtype: which dtype a tensor is to have, by a default for floats and by its name. */
#include "dtype/cast.h"

#include "base/error.h"
#include "base/text.h"

#include <string.h>

bool heft__dtype_is_plain_float(heft_dtype dtype) {
    return dtype == HEFT_F64 || dtype == HEFT_F32 || dtype == HEFT_F16 || dtype == HEFT_BF16;
}

heft_dtype heft_dtype_choose(heft_dtype floats, const heft_dtype_rule *rules, size_t nrules, const char *name,
                             size_t name_len, heft_dtype stored) {
    for (size_t i = nrules; i-- > 0;)
        if (rules[i].glob && heft__glob_match(rules[i].glob, strlen(rules[i].glob), name, name_len)) return rules[i].dtype;
    return floats && heft__dtype_is_plain_float(stored) ? floats : stored;
}

heft_status heft__dtype_check_rules(heft_dtype floats, const heft_dtype_rule *rules, size_t nrules, heft_error *err) {
    if (floats && !heft__dtype_is_plain_float(floats))
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                          "dtype is %s; floats as a whole become F64, F32, F16 or BF16, others by a rule of their own",
                          heft_dtype_name(floats));
    if (nrules && !rules) return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dtype_rules is NULL");
    for (size_t i = 0; i < nrules; i++) {
        const char *why = "it is NULL";
        size_t at = rules[i].glob ? heft__glob_check(rules[i].glob, strlen(rules[i].glob), &why) : 0;
        if (at != SIZE_MAX)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dtype_rules[%zu]: the glob is none: %s, at offset %zu",
                              i, why, at);
        if (rules[i].dtype == HEFT_DTYPE_NONE || rules[i].dtype >= HEFT_DTYPE_COUNT)
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "dtype_rules[%zu]: no dtype has the number %lu", i,
                              (unsigned long)rules[i].dtype);
    }
    return HEFT_OK;
}
