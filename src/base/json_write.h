/* base: JSON writer into a growing buffer. Output is UTF-8, minified or indented; floats shortest, locale-free. Escaped are
 * quote, backslash and bytes below 0x20 (\b \t \n \f \r, else \u00xx in lower case); bytes that are not UTF-8 become U+FFFD. */
#ifndef HEFT_BASE_JSON_WRITE_H
#define HEFT_BASE_JSON_WRITE_H

#include "base/alloc.h"

typedef struct heft__json_out {
    heft_allocator alloc;
    char *text; /* not NUL-terminated */
    uint64_t len, capacity;
    uint32_t depth;
    uint32_t indent;    /* 0: minified; else blanks a level */
    bool ascii;         /* escape everything above 0x7E as \uXXXX (the command line's choice: no terminal injection) */
    bool need_comma, after_key; /* private */
    bool failed;        /* an allocation failed: everything after it does nothing; check it once at the end */
} heft__json_out;

void heft__json_out_init(heft__json_out *out, const heft_allocator *alloc, uint32_t indent, bool ascii);
void heft__json_out_free(heft__json_out *out);
void heft__json_out_object(heft__json_out *out);
void heft__json_out_object_end(heft__json_out *out);
void heft__json_out_array(heft__json_out *out);
void heft__json_out_array_end(heft__json_out *out);
void heft__json_out_key(heft__json_out *out, const char *key, size_t len); /* len SIZE_MAX: strlen */
void heft__json_out_string(heft__json_out *out, const char *text, size_t len); /* the same */
void heft__json_out_u64(heft__json_out *out, uint64_t value);
void heft__json_out_double(heft__json_out *out, double value); /* NaN and infinities become null */
void heft__json_out_bool(heft__json_out *out, bool value);
void heft__json_out_null(heft__json_out *out);
void heft__json_out_newline(heft__json_out *out); /* between values at depth 0 (JSON lines) */

#endif
