/* view: the text form of an index, "0:4, ::2, -1, ..., None". */
#include "view/view.h"

#include "base/text.h"

#include <string.h>

/* Every dim and every new dim needs an item of its own, and there is one ellipsis: a longer index fails in any case. */
enum { VIEW_TEXT_ITEMS = 2 * HEFT_MAX_RANK + 2 };

typedef struct view_text {
    const heft_view *view;
    heft_view *out;
    const char *text;
    size_t len, at;
    heft_error *err;
} view_text;

static heft_status view_text_fail(view_text *t, size_t at, const char *why) {
    char excerpt[64];
    size_t end = at;
    while (end < t->len && end - at < 24 && t->text[end] != ',') end++;
    heft__escape(excerpt, sizeof excerpt, t->text + at, end - at);
    heft__view_fail(t->view, t->out, t->err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "index, position %llu: %s%s%s%s",
                    (unsigned long long)at, why, *excerpt ? ", found '" : "", excerpt, *excerpt ? "'" : "");
    heft__error_at(t->err, at, HEFT_NONE, HEFT_NONE);
    return HEFT_INVALID_ARGUMENT;
}

static bool view_is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool view_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool view_is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void view_text_blanks(view_text *t) {
    while (t->at < t->len && view_is_blank(t->text[t->at])) t->at++;
}

static char view_text_peek(view_text *t) {
    view_text_blanks(t);
    return t->at < t->len ? t->text[t->at] : 0;
}

/* Takes `word` if it stands here and does not go on. */
static bool view_text_word(view_text *t, const char *word) {
    size_t n = strlen(word);
    if (t->len - t->at < n || memcmp(t->text + t->at, word, n) != 0) return false;
    if (view_is_letter(word[0]) && t->at + n < t->len) {
        char next = t->text[t->at + n];
        if (view_is_letter(next) || view_is_digit(next)) return false;
    }
    t->at += n;
    return true;
}

/* Says what stands here in place of an integer, slice, ellipsis or None. */
static heft_status view_text_refuse(view_text *t) {
    char c = view_text_peek(t);
    size_t at = t->at;
    switch (c) {
    case '[': return view_text_fail(t, at, "a list is advanced indexing, which is not supported");
    case '(': return view_text_fail(t, at, "a tuple inside an index is advanced indexing, which is not supported");
    case '"':
    case '\'': return view_text_fail(t, at, "a string is no index");
    case '.': return view_text_fail(t, at, "a float is no index");
    default: break;
    }
    if (view_text_word(t, "True") || view_text_word(t, "False") || view_text_word(t, "true") || view_text_word(t, "false"))
        return view_text_fail(t, at, "a boolean is advanced indexing, which is not supported");
    if (view_text_word(t, "nan") || view_text_word(t, "inf"))
        return view_text_fail(t, at, "a float is no index");
    return view_text_fail(t, at, "an integer, a slice, '...' or None is expected");
}

/* An integer of any length, clamped to int64. *there is false if none stands here. */
static heft_status view_text_integer(view_text *t, int64_t *value, bool *there) {
    char c = view_text_peek(t);
    size_t begin = t->at;
    bool minus = c == '-';
    *there = false;
    if (c == '-' || c == '+') {
        t->at++;
        c = view_text_peek(t);
        if (!view_is_digit(c)) return view_text_fail(t, begin, "digits are expected after a sign");
    }
    if (!view_is_digit(c)) return HEFT_OK;
    uint64_t limit = (uint64_t)INT64_MAX + minus, number = 0;
    size_t first = t->at;
    for (; t->at < t->len && view_is_digit(t->text[t->at]); t->at++) {
        uint64_t digit = (uint64_t)(t->text[t->at] - '0');
        number = number > (limit - digit) / 10 ? limit : number * 10 + digit;
    }
    c = t->at < t->len ? t->text[t->at] : 0;
    if (c == '.' || c == 'e' || c == 'E')
        return view_text_fail(t, begin, "a float is no index");
    if (view_is_letter(c)) return view_text_fail(t, begin, "not a decimal integer");
    if (t->text[first] == '0' && number != 0) return view_text_fail(t, begin, "an integer does not start with 0");
    *value = minus ? (int64_t)(0 - number) : (int64_t)number;
    *there = true;
    return HEFT_OK;
}

/* A bound of a slice: an integer, None, or nothing. */
static heft_status view_text_bound(view_text *t, heft_index *item, uint32_t absent, int64_t *value) {
    bool there;
    heft_status status = view_text_integer(t, value, &there);
    if (status != HEFT_OK || there) return status;
    item->absent |= absent;
    char c = view_text_peek(t);
    if (t->at == t->len || c == ':' || c == ',' || view_text_word(t, "None")) return HEFT_OK;
    return view_text_refuse(t);
}

/* "start:stop:step"; the start has been read. */
static heft_status view_text_slice(view_text *t, heft_index *item) {
    item->kind = HEFT_INDEX_SLICE;
    t->at++; /* the first colon */
    heft_status status = view_text_bound(t, item, HEFT_INDEX_NO_STOP, &item->stop);
    if (status != HEFT_OK) return status;
    if (view_text_peek(t) != ':') {
        item->absent |= HEFT_INDEX_NO_STEP;
        return HEFT_OK;
    }
    t->at++;
    return view_text_bound(t, item, HEFT_INDEX_NO_STEP, &item->step);
}

static heft_status view_text_item(view_text *t, heft_index *item) {
    bool there;
    memset(item, 0, sizeof *item);
    if (view_text_word(t, "...") || view_text_word(t, "Ellipsis")) {
        item->kind = HEFT_INDEX_ELLIPSIS;
        return HEFT_OK;
    }
    heft_status status = view_text_integer(t, &item->start, &there);
    if (status != HEFT_OK) return status;
    if (!there) {
        item->absent = HEFT_INDEX_NO_START;
        item->kind = HEFT_INDEX_NEWAXIS;
        bool none = view_text_word(t, "None");
        if (!none && view_text_word(t, "newaxis")) return HEFT_OK;
        if (view_text_peek(t) == ':') return view_text_slice(t, item); /* None before a colon is a bound left out */
        return none ? (heft_status)HEFT_OK : view_text_refuse(t);
    }
    item->kind = HEFT_INDEX_INTEGER;
    return view_text_peek(t) == ':' ? view_text_slice(t, item) : (heft_status)HEFT_OK;
}

/* The texts that index nothing, and the one list that is basic indexing: an empty one alone, which NumPy takes for 0:0. */
static bool view_text_special(view_text *t, heft_index *items, size_t *nitems) {
    static const struct {
        char open, close;
        size_t nitems;
    } pairs[] = {{'(', ')', 0}, {'[', ']', 1}};
    *nitems = 0;
    char c = view_text_peek(t);
    if (t->at == t->len) return true;
    for (size_t i = 0; i < 2; i++) {
        if (c != pairs[i].open) continue;
        size_t begin = t->at++;
        if (view_text_peek(t) == pairs[i].close) {
            t->at++;
            view_text_blanks(t);
            *nitems = pairs[i].nitems;
            items[0] = (heft_index){.kind = HEFT_INDEX_SLICE, .stop = 0, .step = 1};
            if (t->at == t->len) return true;
        }
        t->at = begin;
    }
    return false;
}

heft_status heft_view_index_text(const heft_view *view, const char *text, size_t text_len, heft_view *out,
                                 heft_error *err) {
    heft_index items[VIEW_TEXT_ITEMS];
    size_t places[VIEW_TEXT_ITEMS], nitems = 0, bad;
    heft_status status = heft__view_check(view, out, err);
    if (status == HEFT_OK && !text)
        status = heft__view_fail(view, out, err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "text is NULL");
    if (status != HEFT_OK) return status;
    view_text t = {view, out, text, text_len == SIZE_MAX ? strlen(text) : text_len, 0, err};
    places[0] = 0;
    if (!view_text_special(&t, items, &nitems)) {
        for (;;) {
            view_text_blanks(&t);
            if (nitems && t.at == t.len) break; /* a comma may end the index */
            if (nitems == VIEW_TEXT_ITEMS) return view_text_fail(&t, t.at, "too many items");
            places[nitems] = t.at;
            status = view_text_item(&t, &items[nitems++]);
            if (status != HEFT_OK) return status;
            view_text_blanks(&t);
            if (t.at == t.len) break;
            if (t.text[t.at] != ',') return view_text_fail(&t, t.at, "a comma is expected");
            t.at++;
        }
    }
    status = heft__view_index(view, items, nitems, out, &bad, err);
    if (status != HEFT_OK && err && bad < nitems) err->offset = places[bad];
    return status;
}
