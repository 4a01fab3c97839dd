/* cli: prints a view as NumPy prints an array: all of it, or its corners when it is large. */
#include "cli.h"

#include "base/float_text.h"

#include <stdlib.h>
#include <string.h>

/* NumPy's limits: more elements than this are summarised, to so many at each end of an axis. */
#define RENDER_ALL 1000
#define RENDER_EDGE 3
/* Most elements that a summary shows; deep arrays get shorter edges. */
#define RENDER_MOST 20000
#define RENDER_WIDTH 75
/* A gap in bytes up to which both ends of an axis are read at once, as plans do. */
#define RENDER_GAP 32768
/* Digits behind the point. */
#define RENDER_PRECISION 8

typedef struct render_axis { /* which indexes are shown: all, or [0, front) and [size - back, size) */
    uint64_t front, back;
    bool cut;
    bool read_over; /* what is left out is so little that both ends are read in one go */
} render_axis;

typedef struct render_state {
    const cli_args *args;
    const heft_view *view;
    heft_read_stats *stats;
    render_axis axes[HEFT_MAX_RANK];
    uint64_t shown; /* elements */
    heft_scalar *values;
    cli_text text;   /* all cells */
    size_t *ends;    /* where each cell ends in it */
    size_t width;    /* of the widest */
    cli_text line;
    size_t line_width;
} render_state;

/* ---- which elements ---------------------------------------------------------------------------------------------- */

static uint64_t render_count(const render_state *s) {
    uint64_t count = 1;
    for (uint32_t d = 0; d < s->view->rank; d++) {
        count *= s->axes[d].front + s->axes[d].back;
        if (count > RENDER_MOST) return count;
    }
    return count;
}

static bool render_reads_over(const heft_view *view, uint32_t d, uint64_t left_out) {
    uint64_t stride = (uint64_t)(view->stride[d] < 0 ? -view->stride[d] : view->stride[d]);
    uint64_t most = (uint64_t)RENDER_GAP * 8 / heft_dtype_bits(view->dtype);
    return stride <= most && left_out <= most && stride * left_out <= most;
}

static void render_cut(render_state *s, uint64_t front, uint64_t back) {
    for (uint32_t d = 0; d < s->view->rank; d++) {
        uint64_t size = (uint64_t)s->view->shape[d];
        render_axis *axis = &s->axes[d];
        axis->cut = size > front + back;
        axis->front = axis->cut ? front : size;
        axis->back = axis->cut ? back : 0;
        axis->read_over = axis->cut && back && render_reads_over(s->view, d, size - front - back);
    }
    s->shown = render_count(s);
}

static void render_choose(render_state *s) {
    if (heft_view_nelems(s->view) <= RENDER_ALL) {
        render_cut(s, INT64_MAX, 0);
        return;
    }
    for (uint64_t edge = RENDER_EDGE; edge > 0; edge--) {
        render_cut(s, edge, edge);
        if (s->shown <= RENDER_MOST) return;
    }
    render_cut(s, 1, 0); /* many short axes: one element must do */
}

/* ---- reading them ------------------------------------------------------------------------------------------------ */

/* The corner that takes the back end of each axis with two ends whose bit of `which` (counted over such axes) is set. */
static bool render_corner(const render_state *s, uint64_t which, heft_view *corner, bool *back) {
    *corner = *s->view;
    for (uint32_t d = 0; d < s->view->rank; d++) {
        const render_axis *axis = &s->axes[d];
        back[d] = false;
        if (axis->read_over) continue;
        if (axis->cut && axis->back) {
            back[d] = which & 1;
            which >>= 1;
        }
        uint64_t n = back[d] ? axis->back : axis->front;
        if (back[d]) corner->offset += (s->view->shape[d] - (int64_t)n) * s->view->stride[d];
        corner->shape[d] = (int64_t)n;
    }
    return heft_view_nelems(corner) > 0;
}

/* The place of an element among all that are shown, or HEFT_NONE if it is not. */
static uint64_t render_spot(const render_state *s, const int64_t *index, const bool *back) {
    uint64_t at = 0;
    for (uint32_t d = 0; d < s->view->rank; d++) {
        const render_axis *axis = &s->axes[d];
        uint64_t i = (uint64_t)index[d] + (back[d] ? axis->front : 0), n = axis->front + axis->back;
        if (axis->read_over && i >= axis->front) {
            uint64_t left_out = (uint64_t)s->view->shape[d] - n;
            if (i < axis->front + left_out) return HEFT_NONE;
            i -= left_out;
        }
        at = at * n + i;
    }
    return at;
}

/* Puts a corner's packed elements where they stand among all that are shown. */
static void render_place(render_state *s, const heft_view *corner, const bool *back, const void *data) {
    int64_t index[HEFT_MAX_RANK] = {0};
    uint64_t count = heft_view_nelems(corner);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = render_spot(s, index, back);
        if (at != HEFT_NONE) s->values[at] = heft_dtype_get(corner->dtype, data, i);
        for (uint32_t d = corner->rank; d-- > 0;) {
            if (++index[d] < corner->shape[d]) break;
            index[d] = 0;
        }
    }
}

/* All corners in one plan, so that what lies close together is read in one go. */
static heft_status render_read_corners(render_state *s, heft_view *corners, uint64_t ncorners, heft_error *err) {
    heft_read_options options = cli_read_options(s->args);
    heft_plan *plan;
    heft_plan_summary summary;
    uint64_t n = 0;
    bool back[HEFT_MAX_RANK];
    for (uint64_t which = 0; which < ncorners; which++) n += render_corner(s, which, &corners[n], back);
    heft_status status = heft_plan_views(corners, n, NULL, &options, &plan, err);
    if (status != HEFT_OK) return status;
    heft_plan_summarize(plan, &summary);
    uint8_t *data = heft__alloc(&heft__default_allocator, summary.dst_nbytes);
    if (data) status = heft_plan_execute(plan, data, summary.dst_nbytes, s->stats, err);
    else status = heft__fail_memory(err, summary.dst_nbytes);
    heft_plan_free(plan);
    /* Corner after corner, each at a multiple of 64. */
    for (uint64_t which = 0, at = 0; which < ncorners && status == HEFT_OK; which++) {
        heft_view corner;
        if (!render_corner(s, which, &corner, back)) continue;
        render_place(s, &corner, back, data + at);
        at += (heft_view_nbytes(&corner) + 63) / 64 * 64;
    }
    heft__free(&heft__default_allocator, data, summary.dst_nbytes);
    return status;
}

static heft_status render_read(render_state *s, heft_error *err) {
    uint64_t ncorners = 1;
    for (uint32_t d = 0; d < s->view->rank; d++)
        if (s->axes[d].cut && s->axes[d].back && !s->axes[d].read_over) ncorners *= 2;
    heft_view *corners = heft__alloc(&heft__default_allocator, ncorners * sizeof *corners);
    if (!corners) return heft__fail_memory(err, ncorners * sizeof *corners);
    heft_status status = render_read_corners(s, corners, ncorners, err);
    heft__free(&heft__default_allocator, corners, ncorners * sizeof *corners);
    return status;
}

/* ---- one number -------------------------------------------------------------------------------------------------- */

typedef struct render_number { /* 0.DDD x 10^exponent */
    bool negative, finite;
    char digits[24];
    int count, exponent;
    char word[64]; /* of what is not finite */
} render_number;

/* Takes a text apart: "-1.5e-05". */
static void render_parse(render_number *out) {
    const char *at = out->word;
    int point = 0, power = 0;
    bool behind = false, power_negative = false;
    out->negative = *at == '-';
    at += out->negative;
    out->finite = *at >= '0' && *at <= '9';
    out->count = 0;
    for (; out->finite && *at && *at != 'e'; at++) {
        if (*at == '.') behind = true;
        else if (out->count == 0 && *at == '0') point -= behind;
        else {
            if (out->count < (int)sizeof out->digits) out->digits[out->count++] = *at;
            point += !behind;
        }
    }
    if (*at == 'e') {
        at++;
        power_negative = *at == '-';
        at += *at == '-' || *at == '+';
        while (*at >= '0' && *at <= '9') power = power * 10 + (*at++ - '0');
    }
    while (out->count && out->digits[out->count - 1] == '0') out->count--;
    out->exponent = out->count ? point + (power_negative ? -power : power) : 0;
}

/* The shortest digits, but none behind `places` of them, or exactly as many as the value has up to `places`. */
static void render_number_of(heft_dtype dtype, const heft_scalar *value, render_number *out) {
    heft_scalar_text(dtype, value, out->word);
    render_parse(out);
}

static void render_round(double value, int places, render_number *out) {
    bool negative = out->negative;
    if (places >= 1 && places <= 17) {
        out->word[heft__double_text_rounded(value, places, out->word)] = 0;
        render_parse(out);
    } else if (places < 1) { /* all of it lies behind the last digit: 0, or one unit there */
        bool up = places == 0 && out->count && (out->digits[0] > '5' || (out->digits[0] == '5' && out->count > 1));
        out->count = up;
        out->digits[0] = '1';
        out->exponent = up ? out->exponent + 1 : 0;
    }
    out->negative = negative;
}

typedef struct render_form {
    bool exponential;
    size_t left, right; /* columns before and behind the point */
    heft_dtype dtype;
} render_form;

/* NumPy's rule: an exponent from a limit of the dtype on, below 1e-4, or where values are more than a factor of 1,000
 * apart. */
static void render_choose_form(const render_state *s, render_form *form) {
    double least = 0, most = 0;
    bool any = false;
    for (uint64_t i = 0; i < s->shown; i++) {
        double v = s->values[i].re < 0 ? -s->values[i].re : s->values[i].re;
        if (!(v > 0) || v > 1.7976931348623157e308) continue; /* zero, nan, inf */
        if (!any || v < least) least = v;
        if (!any || v > most) most = v;
        any = true;
    }
    double limit = form->dtype == HEFT_F64 ? 1e8 : form->dtype == HEFT_F16 ? 1e3 : 1e6;
    form->exponential = any && (most >= limit || least < 1e-4 || most / least > 1000);
}

static size_t render_left(const render_number *n, const render_form *form) {
    size_t whole = form->exponential || n->exponent <= 0 || n->count == 0 ? 1 : (size_t)n->exponent;
    return whole + n->negative;
}

static size_t render_right(const render_number *n, const render_form *form) {
    int digits = n->count - (form->exponential ? 1 : n->exponent);
    return digits > 0 ? (size_t)digits : 0;
}

static void render_digits(cli_text *text, const render_number *n, int from, int to) {
    for (int i = from; i < to; i++) cli_text_put(text, i >= 0 && i < n->count ? &n->digits[i] : "0", 1);
}

static void render_float(cli_text *text, const render_number *n, const render_form *form) {
    size_t total = form->left + 1 + form->right + (form->exponential ? 4 : 0);
    if (!n->finite) {
        size_t len = strlen(n->word);
        cli_text_repeat(text, " ", total > len ? total - len : 0);
        cli_text_put(text, n->word, len);
        return;
    }
    cli_text_repeat(text, " ", form->left - render_left(n, form));
    if (n->negative) cli_text_put(text, "-", 1);
    if (form->exponential) {
        int power = n->count ? n->exponent - 1 : 0;
        render_digits(text, n, 0, 1);
        cli_text_put(text, ".", 1);
        render_digits(text, n, 1, 1 + (int)form->right);
        cli_text_format(text, "e%c%02d", power < 0 ? '-' : '+', power < 0 ? -power : power);
        return;
    }
    if (n->exponent > 0 && n->count) render_digits(text, n, 0, n->exponent);
    else cli_text_put(text, "0", 1);
    cli_text_put(text, ".", 1);
    size_t digits = render_right(n, form);
    if (digits) render_digits(text, n, n->exponent, n->count);
    cli_text_repeat(text, " ", form->right - digits);
}

/* ---- all numbers, equally wide ----------------------------------------------------------------------------------- */

static void render_floats(render_state *s) {
    render_form form = {.dtype = s->view->dtype};
    render_number n;
    render_choose_form(s, &form);
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t i = 0; i < s->shown; i++) {
            render_number_of(form.dtype, &s->values[i], &n);
            int places = form.exponential ? 1 + RENDER_PRECISION : n.exponent + RENDER_PRECISION;
            /* With an exponent all have as many digits as the longest: those of the value itself, not zeros. */
            if (form.exponential && pass == 1) render_round(s->values[i].re, 1 + (int)form.right, &n);
            else if (n.finite && n.count > places) render_round(s->values[i].re, places, &n);
            if (pass == 0) {
                size_t left = n.finite ? render_left(&n, &form) : 1, right = n.finite ? render_right(&n, &form) : 0;
                if (left > form.left) form.left = left;
                if (right > form.right) form.right = right;
            } else {
                render_float(&s->text, &n, &form);
                s->ends[i] = s->text.len;
            }
        }
}

static void render_words(render_state *s) {
    char word[64];
    for (uint64_t i = 0; i < s->shown; i++) {
        size_t n = heft_scalar_text(s->view->dtype, &s->values[i], word);
        cli_text_put(&s->text, word, n);
        s->ends[i] = s->text.len;
    }
}

/* ---- brackets and lines ------------------------------------------------------------------------------------------ */

/* A word of the innermost axis, `width` columns wide. Room is left for all brackets that may close behind it. */
static void render_word(render_state *s, const char *word, size_t len, size_t width, bool first) {
    size_t blanks = width > len ? width - len : 0, indent = s->view->rank;
    size_t used = s->line.len + (first ? 0 : 1) + blanks + len;
    if (!first && used + indent > s->line_width) {
        while (s->line.len && s->line.data[s->line.len - 1] == ' ') s->line.len--;
        cli_print(&s->line);
        cli_text_repeat(&s->line, " ", indent);
    } else if (!first) {
        cli_text_put(&s->line, " ", 1);
    }
    cli_text_repeat(&s->line, " ", blanks);
    cli_text_put(&s->line, word, len);
}

/* The innermost axis from cell `at` on. */
static void render_row(render_state *s, uint64_t at) {
    const render_axis *axis = &s->axes[s->view->rank - 1];
    cli_text_put(&s->line, "[", 1);
    for (uint64_t i = 0; i < axis->front + axis->back; i++) {
        size_t from = at + i ? s->ends[at + i - 1] : 0;
        render_word(s, s->text.data + from, s->ends[at + i] - from, s->width, i == 0);
        if (axis->cut && i + 1 == axis->front) render_word(s, "...", 3, 3, false);
    }
    cli_text_put(&s->line, "]", 1);
}

/* Axis `d` from cell `at` on, which stands for `count` cells. Depth is at most HEFT_MAX_RANK. */
static void render_axis_lines(render_state *s, uint32_t d, uint64_t at, uint64_t count) {
    const render_axis *axis = &s->axes[d];
    uint64_t n = axis->front + axis->back;
    if (d + 1 == s->view->rank) {
        render_row(s, at);
        return;
    }
    cli_text_put(&s->line, "[", 1);
    for (uint64_t i = 0; i < n; i++) {
        render_axis_lines(s, d + 1, at + i * (count / n), count / n);
        bool gap = axis->cut && i + 1 == axis->front;
        for (int k = 0; k < (i + 1 < n) + gap; k++) {
            cli_print(&s->line);
            for (uint32_t blank = s->view->rank - d - 1; blank > 1; blank--) cli_print(&s->line);
            cli_text_repeat(&s->line, " ", d + 1);
            if (k == 0 && gap) cli_text_str(&s->line, "...");
        }
    }
    cli_text_put(&s->line, "]", 1);
}

static void render_print(render_state *s) {
    s->line_width = cli_screen_get()->width > RENDER_WIDTH ? cli_screen_get()->width : RENDER_WIDTH;
    if (s->view->rank == 0) cli_text_put(&s->line, s->text.data, s->text.len);
    else if (s->shown == 0) cli_text_str(&s->line, "[]");
    else render_axis_lines(s, 0, 0, s->shown);
    cli_print(&s->line);
}

heft_status cli_render_view(const cli_args *args, const heft_view *view, heft_read_stats *stats, heft_error *err) {
    render_state s = {.args = args, .view = view, .stats = stats};
    heft_status status = HEFT_OK;
    render_choose(&s);
    s.values = calloc((size_t)s.shown + 1, sizeof *s.values);
    s.ends = calloc((size_t)s.shown + 1, sizeof *s.ends);
    if (!s.values || !s.ends) cli_die_memory();
    if (s.shown) status = render_read(&s, err);
    if (status == HEFT_OK) {
        if (heft_dtype_kind(view->dtype) == 'f') render_floats(&s);
        else render_words(&s);
        if (heft_dtype_kind(view->dtype) == 'b') s.width = strlen("False");
        for (uint64_t i = 0; i < s.shown; i++) {
            size_t len = s.ends[i] - (i ? s.ends[i - 1] : 0);
            if (len > s.width) s.width = len;
        }
        if (view->rank == 0) { /* one value alone: no blanks around it */
            char word[64];
            s.text.len = 0;
            cli_text_put(&s.text, word, heft_scalar_text(view->dtype, &s.values[0], word));
        }
        render_print(&s);
    }
    free(s.values);
    free(s.ends);
    cli_text_free(&s.text);
    cli_text_free(&s.line);
    return status;
}
