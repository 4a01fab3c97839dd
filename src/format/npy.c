/* format: .npy, one array of NumPy. Its header is a Python dict literal, which is read here by its grammar and nothing
 * else. */
#include "format/npy.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long npy_number; /* what %llu takes */

/* ---- the length ------------------------------------------------------------------------------------------------- */

static const uint8_t npy_magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static heft_status npy_fail_short(heft_error *err, uint64_t needed, uint64_t size) {
    heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED,
               "truncated inside the npy header: it needs %llu bytes, there are %llu", (npy_number)needed,
               (npy_number)size);
    heft__error_at(err, size, needed, size);
    return HEFT_CORRUPT;
}

heft_status heft__npy_length(const uint8_t *head, size_t nhead, uint64_t size, const heft__scan_options *options,
                             uint64_t *header_nbytes, heft_error *err) {
    if (memcmp(head, npy_magic, nhead < sizeof npy_magic ? nhead : sizeof npy_magic) != 0) {
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "no npy array: it does not start with \\x93NUMPY");
        heft__error_at(err, 0, HEFT_NONE, HEFT_NONE);
        return HEFT_CORRUPT;
    }
    if (nhead < 10) return npy_fail_short(err, 10, size);
    if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
        heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_HEADER_SYNTAX,
                   "npy version %u.%u at offset 6; versions 1.0, 2.0 and 3.0 are known", head[6], head[7]);
        heft__error_at(err, 6, HEFT_NONE, HEFT_NONE);
        return HEFT_UNSUPPORTED;
    }
    uint64_t prefix = head[6] == 1 ? 10 : 12;
    if (nhead < prefix) return npy_fail_short(err, prefix, size);
    uint64_t length = head[8] | (uint64_t)head[9] << 8;
    if (head[6] > 1) length |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    uint64_t limit = options->max_header_nbytes;
    if (limit == 0 || limit > HEFT__NPY_HEADER_MAX) limit = HEFT__NPY_HEADER_MAX;
    if (length > limit) {
        heft__fail(err, HEFT_LIMIT, HEFT_FAULT_HEADER_LIMIT, "the npy header is %llu bytes long, the limit is %llu",
                   (npy_number)length, (npy_number)limit);
        heft__error_at(err, 8, limit, length);
        return HEFT_LIMIT;
    }
    if (length > size - prefix) return npy_fail_short(err, prefix + length, size);
    *header_nbytes = prefix + length;
    return HEFT_OK;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

typedef struct npy_text {
    const uint8_t *start, *at, *end; /* of the array; of the text */
    bool python2;                    /* integers may end in L */
    const heft__scan_options *options;
    heft__npy *out;
    heft_error *err;
    uint64_t item_nbytes;
} npy_text;

static heft_status npy_fail(const npy_text *t, const uint8_t *at, heft_status status, heft_fault fault,
                            const char *format, ...) HEFT__PRINTF(5, 6);

static heft_status npy_fail(const npy_text *t, const uint8_t *at, heft_status status, heft_fault fault,
                            const char *format, ...) {
    char text[500];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    heft__fail(t->err, status, fault, "npy header, offset %llu: %s", (npy_number)(at - t->start), text);
    heft__error_at(t->err, (uint64_t)(at - t->start), HEFT_NONE, HEFT_NONE);
    return status;
}

static heft_status npy_fail_syntax(const npy_text *t, const uint8_t *at, const char *wanted) {
    return npy_fail(t, at, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "%s expected", wanted);
}

static void npy_skip(npy_text *t) {
    while (t->at < t->end && (*t->at == ' ' || (*t->at >= '\t' && *t->at <= '\r'))) t->at++;
}

/* Takes one character, blanks before it left out. */
static bool npy_take(npy_text *t, char c) {
    npy_skip(t);
    if (t->at == t->end || *t->at != (uint8_t)c) return false;
    t->at++;
    return true;
}

static bool npy_take_word(npy_text *t, const char *word) {
    size_t n = strlen(word);
    npy_skip(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0) return false;
    t->at += n;
    return true;
}

/* A string between quotes of either kind, without escapes: no key and no descr has any. */
static heft_status npy_string(npy_text *t, const uint8_t **text, size_t *len, const char *wanted) {
    npy_skip(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"')) return npy_fail_syntax(t, t->at, wanted);
    const uint8_t *from = t->at + 1, *at = from;
    while (at < t->end && *at != *t->at && *at != '\\' && *at != '\n') at++;
    if (at == t->end || *at != *t->at) return npy_fail_syntax(t, at, "the end of a string");
    *text = from;
    *len = (size_t)(at - from);
    t->at = at + 1;
    return HEFT_OK;
}

/* ---- descr ------------------------------------------------------------------------------------------------------- */

static bool npy_digits(const uint8_t *text, size_t len, uint64_t *out) {
    uint64_t n = 0;
    if (len == 0 || (len > 1 && text[0] == '0')) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || !heft__mul_u64(n, 10, &n) || !heft__add_u64(n, text[i] - '0', &n))
            return false;
    }
    *out = n;
    return true;
}

static heft_dtype npy_known(uint8_t kind, uint64_t size) {
    static const struct {
        char kind;
        uint8_t size, dtype;
    } known[] = {{'b', 1, HEFT_BOOL}, {'i', 1, HEFT_I8},  {'i', 2, HEFT_I16}, {'i', 4, HEFT_I32}, {'i', 8, HEFT_I64},
                 {'u', 1, HEFT_U8},   {'u', 2, HEFT_U16}, {'u', 4, HEFT_U32}, {'u', 8, HEFT_U64}, {'f', 2, HEFT_F16},
                 {'f', 4, HEFT_F32},  {'f', 8, HEFT_F64}, {'c', 8, HEFT_C64}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].kind == (char)kind && known[i].size == size) return known[i].dtype;
    return HEFT_DTYPE_NONE;
}

/* Elements of one or two bytes that have lost their type (V1, V2, and f1, as old versions of ml_dtypes have it). */
static heft_status npy_void(npy_text *t, const uint8_t *at, uint64_t size, const char *spelling) {
    heft_dtype dtype = size == 1 ? t->options->void1 : t->options->void2;
    if (dtype != HEFT_DTYPE_NONE || t->options->list_unknown_dtypes) {
        t->out->dtype = dtype;
        return HEFT_OK;
    }
    return npy_fail(t, at, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE,
                    "dtype '%s': %s bytes without a type, which is how NumPy writes %s of ml_dtypes; say what they are "
                    "by the option void%u",
                    spelling, size == 1 ? "single" : "pairs of", size == 1 ? "float8" : "bfloat16", (unsigned)size);
}

/* What NumPy has and heft lacks: the bytes of an element, 0 if it is no dtype at all, and its name. */
static uint64_t npy_foreign(uint8_t kind, uint64_t size, const uint8_t *rest, size_t nrest, const char **name) {
    *name = NULL;
    if (kind == 'M' || kind == 'm') { /* with a unit: M8[ns] */
        *name = kind == 'M' ? "dates" : "time spans";
        return size == 8 && (nrest == 0 || (nrest > 2 && rest[0] == '[' && rest[nrest - 1] == ']')) ? 8 : 0;
    }
    if (nrest) return 0;
    switch (kind) {
    case 'f': *name = "long double"; return size == 12 || size == 16 ? size : 0;
    case 'c':
        *name = size == 16 ? "complex128" : "complex long double";
        return size == 16 || size == 24 || size == 32 ? size : 0;
    case 'S':
    case 'a': *name = "byte strings"; return size <= UINT32_MAX ? size : 0;
    case 'U': *name = "texts"; return size <= UINT32_MAX ? size * 4 : 0;
    case 'V': *name = "raw bytes"; return size <= UINT32_MAX ? size : 0;
    default: return 0;
    }
}

/* [<>=|] kind size. */
static heft_status npy_descr_text(npy_text *t, const uint8_t *text, size_t len) {
    const uint8_t *at = text, *end = text + len;
    char spelling[48];
    const char *name;
    uint64_t size = 0;
    heft__escape(spelling, sizeof spelling, (const char *)text, len);
    bool big = at < end && *at == '>';
    if (at < end && strchr("<>=|", *at)) at++;
    uint8_t kind = at < end ? *at++ : 0;
    if (kind == 'O')
        return npy_fail(t, text, HEFT_UNSUPPORTED, HEFT_FAULT_OBJECT_ARRAY,
                        "dtype '%s': Python objects, which only running a pickle could make: refused", spelling);
    const uint8_t *digits = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    if (!npy_digits(digits, (size_t)(at - digits), &size))
        return npy_fail(t, text, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "'%s' is no dtype", spelling);
    t->item_nbytes = size;
    if (at == end) t->out->dtype = npy_known(kind, size);
    if (t->out->dtype != HEFT_DTYPE_NONE) {
        if (big && heft__dtypes[t->out->dtype].component_bits > 8) t->out->flags |= HEFT__ENTRY_BIG;
        return HEFT_OK;
    }
    if (at == end && ((kind == 'V' && (size == 1 || size == 2)) || (kind == 'f' && size == 1)))
        return npy_void(t, text, size, spelling);
    t->item_nbytes = npy_foreign(kind, size, at, (size_t)(end - at), &name);
    if (!name || (t->item_nbytes == 0 && size != 0))
        return npy_fail(t, text, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "'%s' is no dtype", spelling);
    if (t->options->list_unknown_dtypes) return HEFT_OK;
    return npy_fail(t, text, HEFT_UNSUPPORTED, HEFT_FAULT_UNKNOWN_DTYPE, "dtype '%s' (%s) has no counterpart in heft",
                    spelling, name);
}

/* The first string of each tuple of a structured dtype is the name of a field. */
static heft_status npy_fail_structured(npy_text *t) {
    char names[300] = "", name[64];
    const uint8_t *open = t->at, *at = t->at;
    int depth = 0;
    for (size_t used = 0; at < t->end; at++) {
        depth += (*at == '[' || *at == '(') - (*at == ']' || *at == ')');
        if (depth == 0) break;
        if (*at != '\'' && *at != '"') continue;
        const uint8_t *close = memchr(at + 1, *at, (size_t)(t->end - at) - 1);
        if (!close) break;
        if (depth == 2 && at[-1] == '(') {
            heft__escape(name, sizeof name, (const char *)at + 1, (size_t)(close - at) - 1);
            if (used < 200) used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", name);
        }
        at = close;
    }
    return npy_fail(t, open, HEFT_UNSUPPORTED, HEFT_FAULT_STRUCTURED_ARRAY, "a structured dtype with the fields %s",
                    names[0] ? names : "(none)");
}

static heft_status npy_descr(npy_text *t) {
    const uint8_t *text;
    size_t len;
    npy_skip(t);
    if (t->at < t->end && *t->at == '[') return npy_fail_structured(t);
    if (t->at < t->end && *t->at == '(')
        return npy_fail(t, t->at, HEFT_UNSUPPORTED, HEFT_FAULT_STRUCTURED_ARRAY, "a dtype of sub-arrays");
    heft_status status = npy_string(t, &text, &len, "the text of a dtype");
    return status ? status : npy_descr_text(t, text, len);
}

/* ---- fortran_order and shape ------------------------------------------------------------------------------------- */

static heft_status npy_order(npy_text *t) {
    if (npy_take_word(t, "True"))
        t->out->flags |= HEFT__ENTRY_FORTRAN;
    else if (!npy_take_word(t, "False"))
        return npy_fail_syntax(t, t->at, "True or False");
    return HEFT_OK;
}

static heft_status npy_dim(npy_text *t) {
    npy_skip(t);
    const uint8_t *from = t->at;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9') t->at++;
    uint64_t dim = 0;
    if (t->at == from) return npy_fail_syntax(t, from, "a dim, a whole number that is not negative,");
    if (!npy_digits(from, (size_t)(t->at - from), &dim) || dim > INT64_MAX)
        return npy_fail(t, from, HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW, "a dim that is no number below 2^63");
    if (t->out->rank == HEFT_MAX_RANK)
        return npy_fail(t, from, HEFT_LIMIT, HEFT_FAULT_RANK_LIMIT, "more than %d dims", HEFT_MAX_RANK);
    t->out->shape[t->out->rank++] = dim;
    if (t->python2 && t->at < t->end && *t->at == 'L') t->at++;
    return HEFT_OK;
}

static heft_status npy_shape(npy_text *t) {
    if (!npy_take(t, '(')) return npy_fail_syntax(t, t->at, "a tuple");
    bool comma = true;
    while (!npy_take(t, ')')) {
        if (!comma) return npy_fail_syntax(t, t->at, "a comma or the end of the shape");
        heft_status status = npy_dim(t);
        if (status) return status;
        comma = npy_take(t, ',');
    }
    if (t->out->rank == 1 && !comma) return npy_fail_syntax(t, t->at - 1, "a comma after the only dim");
    return HEFT_OK;
}

/* ---- the dict ---------------------------------------------------------------------------------------------------- */

static heft_status npy_pair(npy_text *t, uint32_t *seen) {
    static const struct {
        const char *key;
        heft_status (*read)(npy_text *t);
    } keys[] = {{"descr", npy_descr}, {"fortran_order", npy_order}, {"shape", npy_shape}};
    const uint8_t *key, *at;
    size_t len;
    npy_skip(t);
    at = t->at;
    heft_status status = npy_string(t, &key, &len, "a key");
    for (uint32_t i = 0; i < 3 && !status; i++) {
        if (strlen(keys[i].key) != len || memcmp(keys[i].key, key, len) != 0) continue;
        if (*seen & 1u << i)
            return npy_fail(t, at, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "the key '%s' stands twice", keys[i].key);
        *seen |= 1u << i;
        if (!npy_take(t, ':')) return npy_fail_syntax(t, t->at, "a colon");
        return keys[i].read(t);
    }
    if (status) return status;
    char name[80];
    heft__escape(name, sizeof name, (const char *)key, len);
    return npy_fail(t, at, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "the unknown key '%s'", name);
}

static heft_status npy_dict(npy_text *t) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    uint32_t seen = 0;
    bool comma = true;
    if (!npy_take(t, '{')) return npy_fail_syntax(t, t->at, "{");
    while (!npy_take(t, '}')) {
        if (!comma) return npy_fail_syntax(t, t->at, "a comma or }");
        heft_status status = npy_pair(t, &seen);
        if (status) return status;
        comma = npy_take(t, ',');
    }
    for (uint32_t i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return npy_fail(t, t->at - 1, HEFT_CORRUPT, HEFT_FAULT_HEADER_SYNTAX, "the key '%s' is missing", keys[i]);
    npy_skip(t);
    return t->at == t->end ? HEFT_OK : npy_fail_syntax(t, t->at, "nothing but blanks after the dict");
}

/* The product from the left, as in every format: what opens can be written in another one. */
static bool npy_nbytes(const npy_text *t, uint64_t *nbytes) {
    uint64_t n = 1;
    *nbytes = 0;
    for (uint32_t i = 0; i < t->out->rank; i++)
        if (!heft__mul_u64(n, t->out->shape[i], &n)) return false;
    if (!heft__mul_u64(n, t->item_nbytes, &n) || n > INT64_MAX) return false;
    *nbytes = n;
    return true;
}

heft_status heft__npy_parse(const uint8_t *header, uint64_t header_nbytes, uint64_t size,
                            const heft__scan_options *options, heft__npy *out, uint64_t *extra, heft_error *err) {
    npy_text t = {.start = header,
                  .at = header + (header[6] == 1 ? 10 : 12),
                  .end = header + header_nbytes,
                  .python2 = header[6] < 3,
                  .options = options,
                  .out = out,
                  .err = err};
    memset(out, 0, sizeof *out);
    out->header_nbytes = header_nbytes;
    if (header[6] == 3) {
        size_t len = (size_t)(t.end - t.at), bad = heft__utf8_check((const char *)t.at, len);
        if (bad < len) return npy_fail(&t, t.at + bad, HEFT_CORRUPT, HEFT_FAULT_UTF8, "not UTF-8");
    }
    heft_status status = npy_dict(&t);
    if (status) return status;
    if (out->rank < 2) out->flags &= (uint8_t)~HEFT__ENTRY_FORTRAN;
    if (!npy_nbytes(&t, &out->nbytes))
        return npy_fail(&t, t.start, HEFT_CORRUPT, HEFT_FAULT_SHAPE_OVERFLOW,
                        "the size of the array passes 2^63 bytes");
    uint64_t data = size - header_nbytes;
    if (out->nbytes > data) {
        heft__fail(err, HEFT_CORRUPT, HEFT_FAULT_TRUNCATED,
                   "truncated: shape and dtype need %llu bytes of data, there are %llu, %llu missing",
                   (npy_number)out->nbytes, (npy_number)data, (npy_number)(out->nbytes - data));
        heft__error_at(err, size, out->nbytes, data);
        return HEFT_CORRUPT;
    }
    *extra = data - out->nbytes;
    return HEFT_OK;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static int npy_probe(const uint8_t *head, size_t nhead, uint64_t size) {
    (void)size;
    return nhead >= sizeof npy_magic && memcmp(head, npy_magic, sizeof npy_magic) == 0 ? 100 : 0;
}

static heft_status npy_run(const uint8_t *head, size_t nhead, const heft__scan_options *options, heft__listing *l,
                           heft_error *err) {
    uint64_t size = heft_source_size(l->source), n = 0, extra = 0;
    uint32_t twice;
    heft__npy npy;
    heft_status status = heft__npy_length(head, nhead, size, options, &n, err);
    if (status) return status;
    l->header = heft__alloc(&l->alloc, n + 1 + HEFT__HEADER_SLACK);
    if (!l->header) return heft__fail_memory(err, n + 1 + HEFT__HEADER_SLACK);
    l->header_nbytes = l->data_start = n;
    status = heft_source_read(l->source, 0, n, l->header, err);
    if (!status) status = heft__npy_parse((const uint8_t *)l->header, n, size, options, &npy, &extra, err);
    if (status) return status;
    heft__entry *entry = heft__listing_add(l, "data", 4, npy.dtype, npy.rank, npy.shape);
    if (!entry) return heft__fail_memory(err, HEFT_NONE);
    entry->end = npy.nbytes;
    entry->flags = npy.flags;
    if (!heft__listing_index(l, &twice)) return heft__fail_memory(err, HEFT_NONE);
    status = heft__scan_opaque(l, err);
    if (status) return status;
    return extra ? heft__scan_extra(l, options, n + npy.nbytes, extra, err) : HEFT_OK;
}

static heft_status npy_scan(const uint8_t *head, size_t nhead, const heft__scan_options *options,
                            heft__listing *listing, heft_error *err) {
    heft_error local;
    listing->format = "npy";
    return heft__scan_end(npy_run(head, nhead, options, listing, &local), &local, options, listing, err);
}

const heft__format heft__format_npy = {"npy", npy_probe, npy_scan};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *npy_spelling(heft_dtype dtype, heft_foreign foreign) {
    switch (dtype) {
    case HEFT_BOOL: return "|b1";
    case HEFT_I8: return "|i1";
    case HEFT_U8: return "|u1";
    case HEFT_I16: return "<i2";
    case HEFT_U16: return "<u2";
    case HEFT_I32: return "<i4";
    case HEFT_U32: return "<u4";
    case HEFT_I64: return "<i8";
    case HEFT_U64: return "<u8";
    case HEFT_F16: return "<f2";
    case HEFT_F32: return "<f4";
    case HEFT_F64: return "<f8";
    case HEFT_C64: return "<c8";
    default: break;
    }
    uint32_t bits = heft_dtype_bits(dtype);
    if (foreign == HEFT_FOREIGN_REFUSE || (bits != 8 && bits != 16)) return NULL;
    return foreign == HEFT_FOREIGN_VOID ? (bits == 8 ? "|V1" : "|V2") : bits == 8 ? "|u1" : "<u2";
}

heft_status heft__npy_header(heft_dtype dtype, uint32_t rank, const uint64_t *shape, bool fortran, heft_foreign foreign,
                             uint8_t *out, size_t *nbytes, heft_error *err) {
    const char *descr = npy_spelling(dtype, foreign);
    char text[HEFT__NPY_EMIT_MAX];
    int n;
    if (!descr)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "NumPy has no dtype %s%s",
                          heft_dtype_name(dtype),
                          heft_dtype_bits(dtype) % 8 ? "" : "; it can be written as raw bytes or as unsigned integers");
    if (rank > HEFT_MAX_RANK)
        return heft__fail(err, HEFT_LIMIT, HEFT_FAULT_RANK_LIMIT, "NumPy has arrays of at most %d dims", HEFT_MAX_RANK);
    n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr,
                 fortran ? "True" : "False");
    for (uint32_t i = 0; i < rank; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%llu", i ? ", " : "",
                      (npy_number)shape[fortran ? rank - 1 - i : i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "%s), }", rank == 1 ? "," : "");
    if (rank) { /* NumPy keeps room for the slowest dim to grow to 21 digits */
        char digits[24];
        int used = snprintf(digits, sizeof digits, "%llu", (npy_number)shape[0]);
        n += snprintf(text + n, sizeof text - (size_t)n, "%*s", 21 - used, "");
    }
    /* To the next multiple of 64, which is never this one. 64 dims stay far below the 65,535 bytes of version 1.0. */
    size_t total = ((10 + (size_t)n + 1) / 64 + 1) * 64, length = total - 10;
    memcpy(out, npy_magic, sizeof npy_magic);
    out[6] = 1;
    out[7] = 0;
    out[8] = (uint8_t)(length & 255);
    out[9] = (uint8_t)(length >> 8);
    memcpy(out + 10, text, (size_t)n);
    memset(out + 10 + n, ' ', length - (size_t)n - 1);
    out[total - 1] = '\n';
    *nbytes = total;
    return HEFT_OK;
}

static heft_status npy_emit_layout(heft__emit *emit, heft_error *err) {
    uint8_t header[HEFT__NPY_EMIT_MAX];
    size_t n;
    if (emit->nentries != 1)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "an npy file holds one array, not %llu; npz holds several",
                          (npy_number)emit->nentries);
    if (emit->nmetadata)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "npy files hold no metadata; leave it out");
    if (emit->align > 64)
        return heft__fail(err, HEFT_UNSUPPORTED, HEFT_FAULT_CALL, "the array of an npy file is aligned to 64 bytes");
    heft__emit_entry *entry = &emit->entries[0];
    heft_status status = heft__npy_header(entry->dtype, entry->rank, entry->shape, entry->fortran, emit->foreign, header, &n,
                                          err);
    if (status) {
        heft__error_tensor(err, entry->name, entry->name_len);
        return status;
    }
    uint8_t *piece = heft__emit_add_piece(emit, 0, n);
    if (!piece) return heft__fail_memory(err, n);
    memcpy(piece, header, n);
    entry->offset = emit->header_nbytes = n;
    emit->file_nbytes = n + entry->nbytes; /* the bytes of a tensor are far below 2^63 */
    return HEFT_OK;
}

const heft__emitter heft__emitter_npy = {"npy", false, npy_emit_layout, NULL};
