/* cli: reads the few fields of a config.json that tell what a model is. */
#include "kinds.h"

#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

/* Longer ones are not looked at. */
#define CONFIG_MOST ((uint64_t)1 << 20)

static void config_string(const heft__json_token *token, char *dst, size_t size) {
    if (token->type == HEFT__JSON_STRING && token->len < size) dst[heft__json_unescape(token, dst)] = 0;
}

/* The members of "quantization_config" (transformers) or "quantization" (MLX). */
static bool config_quantization(heft__json *json, kind_config *out, bool mlx) {
    heft__json_token key, value;
    if (mlx && !out->method[0]) memcpy(out->method, "mlx", 4);
    while (heft__json_next(json, &key) == HEFT__JSON_KEY) {
        uint64_t number;
        heft__json_next(json, &value);
        if (heft__json_equals(&key, "quant_method", 12)) config_string(&value, out->method, sizeof out->method);
        if (heft__json_equals(&key, "bits", 4) && value.type == HEFT__JSON_NUMBER && heft__json_u64(&value, &number) &&
            number >= 1 && number <= 16)
            out->bits = (uint32_t)number;
        if (heft__json_equals(&key, "load_in_4bit", 12) && value.type == HEFT__JSON_TRUE) out->bits = 4;
        if (!heft__json_skip(json, &value)) return false;
    }
    return key.type == HEFT__JSON_OBJECT_END;
}

static bool config_member(heft__json *json, const heft__json_token *key, kind_config *out) {
    heft__json_token value;
    heft__json_next(json, &value);
    bool mlx = heft__json_equals(key, "quantization", 12);
    if (value.type == HEFT__JSON_OBJECT && (mlx || heft__json_equals(key, "quantization_config", 19)))
        return config_quantization(json, out, mlx);
    if (heft__json_equals(key, "model_type", 10)) config_string(&value, out->model_type, sizeof out->model_type);
    if (heft__json_equals(key, "_class_name", 11)) config_string(&value, out->class_name, sizeof out->class_name);
    if (value.type == HEFT__JSON_ARRAY && heft__json_equals(key, "architectures", 13)) {
        if (heft__json_next(json, &value) == HEFT__JSON_ARRAY_END) return true;
        config_string(&value, out->architecture, sizeof out->architecture);
        if (!heft__json_skip(json, &value)) return false;
        while (heft__json_next(json, &value) != HEFT__JSON_ARRAY_END)
            if (value.type == HEFT__JSON_ERROR || !heft__json_skip(json, &value)) return false;
        return true;
    }
    return heft__json_skip(json, &value);
}

static void config_parse(const char *text, size_t len, kind_config *out) {
    heft__json json;
    heft__json_token token;
    if (heft__utf8_check(text, len) != len) return;
    heft__json_init(&json, text, len);
    if (heft__json_next(&json, &token) != HEFT__JSON_OBJECT) return;
    kind_config found = {0};
    while (heft__json_next(&json, &token) == HEFT__JSON_KEY)
        if (!config_member(&json, &token, &found)) return;
    if (token.type != HEFT__JSON_OBJECT_END) return;
    found.found = true;
    *out = found;
}

void cli_kinds_config(const heft_archive *archive, kind_config *out) {
    heft_file file;
    cli_text path = {0};
    char *text;
    size_t len;
    *out = (kind_config){0};
    if (heft_archive_file(archive, 0, &file, NULL) != HEFT_OK || strcmp(file.path, "-") == 0) return;
    const char *slash = strrchr(file.path, '/');
    if (slash) cli_text_put(&path, file.path, (size_t)(slash - file.path) + 1);
    cli_text_put(&path, "config.json", sizeof "config.json");
    /* No config, an unreadable or a broken one: then names must do. */
    if (cli_read_text(path.data, CONFIG_MOST, &text, &len, NULL) == HEFT_OK) {
        config_parse(text, len, out);
        heft__free(&heft__default_allocator, text, len + 1);
    }
    cli_text_free(&path);
}
