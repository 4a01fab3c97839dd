/* base: options structs of callers, of any age, checked and copied. */
#include "base/options.h"

#include "base/error.h"

#include <string.h>

heft_status heft__options_copy(void *out, size_t known, const void *given, const char *what, heft_error *err) {
    memset(out, 0, known);
    if (!given) return HEFT_OK;
    size_t size;
    memcpy(&size, given, sizeof size); /* struct_size comes first in every options struct */
    if (size < sizeof size)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "%s: struct_size is %zu; set it to sizeof(%s)",
                          what, size, what);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)given)[i])
            return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL,
                              "%s: byte %zu is set, but this version knows only the first %zu bytes of it: the program "
                              "was built for a newer heft",
                              what, i, known);
    memcpy(out, given, size < known ? size : known);
    memcpy(out, &known, sizeof known);
    return HEFT_OK;
}
