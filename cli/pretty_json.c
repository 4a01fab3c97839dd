/* cli: lays JSON that stands inside a metadata string out for reading. */
#include "info.h"

#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

typedef struct pretty_state {
    cli_text *text;
    size_t margin;
    uint32_t depth;
    bool need_comma, after_key, flat;
} pretty_state;

static void pretty_line(pretty_state *p) {
    cli_text_put(p->text, "\n", 1);
    cli_text_repeat(p->text, " ", p->margin + 2 * (size_t)p->depth);
}

/* What stands before an element. Arrays of scalars stay on a line. */
static void pretty_element(pretty_state *p) {
    if (p->after_key) {
        p->after_key = false;
        return;
    }
    if (p->need_comma) cli_text_put(p->text, ",", 1);
    if (p->depth && !p->flat) pretty_line(p);
    else if (p->need_comma) cli_text_put(p->text, " ", 1);
}

/* The raw text of a token, quoted where it was; escapes stay as they are, so nothing can reach the terminal. */
static void pretty_raw(pretty_state *p, const heft__json_token *token, bool quoted) {
    if (quoted) cli_text_put(p->text, "\"", 1);
    cli_text_escaped(p->text, token->text, token->len);
    if (quoted) cli_text_put(p->text, "\"", 1);
}

/* True if the array that was just opened holds scalars only. */
static bool pretty_is_flat(const heft__json *json) {
    heft__json ahead = *json;
    heft__json_token token;
    for (;;)
        switch (heft__json_next(&ahead, &token)) {
        case HEFT__JSON_ARRAY_END: return true;
        case HEFT__JSON_STRING:
        case HEFT__JSON_NUMBER:
        case HEFT__JSON_TRUE:
        case HEFT__JSON_FALSE:
        case HEFT__JSON_NULL: break;
        default: return false;
        }
}

static void pretty_token(pretty_state *p, const heft__json *json, const heft__json_token *token) {
    bool closes = token->type == HEFT__JSON_OBJECT_END || token->type == HEFT__JSON_ARRAY_END;
    if (closes) {
        p->depth--;
        if (p->need_comma && !p->flat) pretty_line(p);
        p->flat = false;
        cli_text_str(p->text, token->type == HEFT__JSON_OBJECT_END ? "}" : "]");
        p->need_comma = true;
        return;
    }
    pretty_element(p);
    switch (token->type) {
    case HEFT__JSON_OBJECT:
    case HEFT__JSON_ARRAY:
        cli_text_str(p->text, token->type == HEFT__JSON_OBJECT ? "{" : "[");
        p->flat = token->type == HEFT__JSON_ARRAY && pretty_is_flat(json);
        p->depth++;
        p->need_comma = false;
        return;
    case HEFT__JSON_KEY:
        pretty_raw(p, token, true);
        cli_text_str(p->text, ": ");
        p->after_key = true;
        return;
    case HEFT__JSON_STRING: pretty_raw(p, token, true); break;
    case HEFT__JSON_NUMBER: pretty_raw(p, token, false); break;
    case HEFT__JSON_TRUE: cli_text_str(p->text, "true"); break;
    case HEFT__JSON_FALSE: cli_text_str(p->text, "false"); break;
    default: cli_text_str(p->text, "null"); break;
    }
    p->need_comma = true;
}

bool cli_text_pretty_json(cli_text *text, const char *source, size_t len, size_t margin) {
    heft__json json;
    heft__json_token token;
    size_t before = text->len;
    pretty_state p = {.text = text, .margin = margin};
    if (len == 0 || (*source != '{' && *source != '[') || heft__utf8_check(source, len) != len) return false;
    heft__json_init(&json, source, len);
    for (;;) {
        heft__json_type type = heft__json_next(&json, &token);
        if (type == HEFT__JSON_END) return true;
        if (type == HEFT__JSON_ERROR) {
            text->len = before;
            return false;
        }
        pretty_token(&p, &json, &token);
    }
}
