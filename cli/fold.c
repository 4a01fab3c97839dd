/* cli: folds tensors whose names differ only in whole numbers ("layers.0.w", "layers.1.w") into one line. */
#include "cli.h"

#include "base/hash_index.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of a name that may vary; later ones are taken as text. */
#define FOLD_MOST 4
/* Longest number in digits; longer ones are text. */
#define FOLD_DIGITS 18
/* Pieces of a set that are written out. */
#define FOLD_PIECES 8

typedef struct fold_numbers {
    uint32_t count;
    size_t at[FOLD_MOST], len[FOLD_MOST];
    uint64_t value[FOLD_MOST];
} fold_numbers;

typedef struct fold_group {
    uint64_t first_id, count, filled;
} fold_group;

typedef struct fold_run { /* members [begin, end) of a group that share the number at one place */
    uint64_t hash, leader, begin, end, value;
} fold_run;

typedef struct fold_set {
    const fold_run *runs;
    uint64_t count;
} fold_set;

typedef struct fold_state {
    const heft_archive *archive;
    heft_error *err;
    cli_fold *out;
    const uint64_t *ids; /* the selection */
    uint64_t nids;
    uint64_t *place;     /* by id: its place in the selection, HEFT_NONE: not in it */
    uint64_t *natural;   /* the selection in natural order */
    uint32_t *group_of;  /* by place in `natural` */
    fold_group *groups;
    uint64_t ngroups, groups_capacity;
    uint64_t *members; /* ids by group */
    heft__hash_index index;
    cli_text form, other, label;
    /* of the group being emitted */
    uint64_t *values; /* `count` of them a member */
    fold_numbers numbers;
    heft_tensor first;
    fold_set sets[FOLD_MOST];
    bool failed;
} fold_state;

static bool fold_separator(char c) {
    return c == '.' || c == '/' || c == '_' || c == '-' || c == ':';
}

static void fold_find_numbers(const char *name, size_t len, fold_numbers *out) {
    out->count = 0;
    for (size_t at = 0; at < len && out->count < FOLD_MOST;) {
        size_t n = 0;
        uint64_t value = 0;
        while (at + n < len && name[at + n] >= '0' && name[at + n] <= '9' && n <= FOLD_DIGITS)
            value = value * 10 + (uint64_t)(name[at + n++] - '0');
        bool ends = at + n == len || fold_separator(name[at + n]);
        if (n && n <= FOLD_DIGITS && ends && (n == 1 || name[at] != '0')) {
            out->at[out->count] = at;
            out->len[out->count] = n;
            out->value[out->count++] = value;
        }
        at += n;
        while (at < len && !fold_separator(name[at])) at++;
        at++;
    }
}

/* What tensors of one line have in common: the name without its numbers, dtype, element count. */
static void fold_form(const heft_tensor *t, const fold_numbers *numbers, cli_text *form) {
    size_t at = 0;
    form->len = 0;
    for (uint32_t i = 0; i < numbers->count; i++) {
        cli_text_put(form, t->name + at, numbers->at[i] - at);
        cli_text_put(form, "", 1); /* a NUL stands for the number; fold_same_places minds names that hold NULs */
        at = numbers->at[i] + numbers->len[i];
    }
    cli_text_put(form, t->name + at, t->name_len - at);
    cli_text_put(form, (const char *)&t->dtype, sizeof t->dtype);
    cli_text_put(form, (const char *)&t->nelems, sizeof t->nelems);
}

/* Text of the same lengths before each number. */
static bool fold_same_places(const fold_numbers *a, const fold_numbers *b) {
    size_t x = 0, y = 0;
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->at[i] - x != b->at[i] - y) return false;
        x = a->at[i] + a->len[i];
        y = b->at[i] + b->len[i];
    }
    return true;
}

static bool fold_same(fold_state *s, const heft_tensor *t, const fold_numbers *numbers, uint64_t id) {
    heft_tensor other;
    fold_numbers its;
    if (heft_archive_get(s->archive, id, &other, NULL) != HEFT_OK || other.dtype != t->dtype || other.rank != t->rank)
        return false;
    if (t->rank && memcmp(other.shape, t->shape, t->rank * sizeof *t->shape) != 0) return false;
    fold_find_numbers(other.name, other.name_len, &its);
    if (!fold_same_places(&its, numbers)) return false;
    fold_form(&other, &its, &s->other);
    return s->form.len == s->other.len && memcmp(s->form.data, s->other.data, s->form.len) == 0;
}

/* Puts tensor number `place` of the natural order into its group, a new one if need be. */
static bool fold_sort_in(fold_state *s, uint64_t place) {
    heft_tensor t;
    fold_numbers numbers;
    uint32_t number;
    if (heft_archive_get(s->archive, s->natural[place], &t, NULL) != HEFT_OK) return false;
    fold_find_numbers(t.name, t.name_len, &numbers);
    fold_form(&t, &numbers, &s->form);
    uint32_t hash = heft__hash_name(&s->index, s->form.data, s->form.len);
    uint64_t cursor = heft__hash_start(&s->index, hash);
    while (numbers.count && heft__hash_next(&s->index, hash, &cursor, &number)) {
        if (!fold_same(s, &t, &numbers, s->groups[number].first_id)) continue;
        s->groups[number].count++;
        s->group_of[place] = number;
        return true;
    }
    if (s->ngroups >= UINT32_MAX - 1) return false;
    if (!heft__grow(&heft__default_allocator, (void **)&s->groups, &s->groups_capacity, s->ngroups, sizeof *s->groups, 256))
        return false;
    s->group_of[place] = (uint32_t)s->ngroups;
    s->groups[s->ngroups] = (fold_group){.first_id = t.id, .count = 1};
    return !numbers.count ? (s->ngroups++, true) : heft__hash_add(&s->index, hash, (uint32_t)s->ngroups++);
}

/* ---- sets of numbers -> "{0-5}" ---------------------------------------------------------------------------------- */

typedef struct fold_set_reader {
    const char *first;
    size_t stride;
    uint64_t count;
} fold_set_reader;

static uint64_t fold_number(const fold_set_reader *set, uint64_t at) {
    uint64_t value;
    memcpy(&value, set->first + at * set->stride, sizeof value);
    return value;
}

/* Numbers from *at on that follow one another; *at moves behind them. */
static void fold_next_piece(const fold_set_reader *set, uint64_t *at, uint64_t *from, uint64_t *to) {
    *from = *to = fold_number(set, (*at)++);
    while (*at < set->count && fold_number(set, *at) == *to + 1) *to = fold_number(set, (*at)++);
}

static void fold_piece(cli_text *text, uint64_t from, uint64_t to) {
    cli_text_u64(text, from);
    if (to == from) return;
    cli_text_put(text, to == from + 1 ? "," : "-", 1);
    cli_text_u64(text, to);
}

void cli_text_number_set(cli_text *text, const uint64_t *first, size_t stride, uint64_t count) {
    fold_set_reader set = {.first = (const char *)first, .stride = stride, .count = count};
    uint64_t from = 0, to = 0, pieces = 0, at = 0, even = 2;
    if (count == 1) {
        cli_text_u64(text, *first);
        return;
    }
    while (at < count) {
        fold_next_piece(&set, &at, &from, &to);
        pieces++;
    }
    uint64_t step = fold_number(&set, 1) - *first;
    while (even < count && fold_number(&set, even) - fold_number(&set, even - 1) == step) even++;
    uint64_t shown = pieces <= FOLD_PIECES ? pieces : even == count ? 3 : FOLD_PIECES - 2;
    cli_text_put(text, "{", 1);
    at = 0;
    for (uint64_t i = 0; i < shown; i++) {
        fold_next_piece(&set, &at, &from, &to);
        if (i) cli_text_put(text, ",", 1);
        fold_piece(text, from, to);
    }
    if (shown < pieces) { /* "{0,2,4,...,62}" */
        cli_text_str(text, ",\xE2\x80\xA6,");
        while (at < count) fold_next_piece(&set, &at, &from, &to);
        fold_piece(text, from, to);
    }
    cli_text_put(text, "}", 1);
}

static void fold_line(fold_state *s, uint64_t id) {
    uint64_t count = 1;
    size_t at = 0;
    s->label.len = 0;
    for (uint32_t i = 0; i < s->numbers.count; i++) {
        cli_text_escaped(&s->label, s->first.name + at, s->numbers.at[i] - at);
        cli_text_number_set(&s->label, &s->sets[i].runs->value, sizeof *s->sets[i].runs, s->sets[i].count);
        count *= s->sets[i].count;
        at = s->numbers.at[i] + s->numbers.len[i];
    }
    cli_text_escaped(&s->label, s->first.name + at, s->first.name_len - at);
    if (!s->label.len) cli_text_name(&s->label, "", 0);
    char *text = heft__arena_text(&s->out->arena, s->label.data, s->label.len);
    if (!text || !heft__grow(&heft__default_allocator, (void **)&s->out->lines, &s->out->capacity, s->out->count,
                             sizeof *s->out->lines, 256)) {
        s->failed = true;
        return;
    }
    s->out->lines[s->out->count++] =
        (cli_fold_line){.label = text, .label_len = s->label.len, .id = id, .count = count, .place = s->place[id]};
}

/* ---- a group -> lines: each a full product of sets --------------------------------------------------------------- */

static int fold_by_hash(const void *a, const void *b) {
    const fold_run *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int fold_by_leader(const void *a, const void *b) {
    const fold_run *x = a, *y = b;
    if (x->leader != y->leader) return x->leader < y->leader ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Two runs with the same numbers at all places behind `place`. */
static bool fold_same_rest(const fold_state *s, const fold_run *a, const fold_run *b, uint32_t place) {
    uint64_t n = a->end - a->begin, k = s->numbers.count;
    if (b->end - b->begin != n) return false;
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t p = place + 1; p < k; p++)
            if (s->values[(a->begin + i) * k + p] != s->values[(b->begin + i) * k + p]) return false;
    return true;
}

static uint64_t fold_split(const fold_state *s, uint64_t begin, uint64_t end, uint32_t place, fold_run *runs) {
    uint64_t k = s->numbers.count, n = 0;
    for (uint64_t i = begin; i < end;) {
        fold_run *run = &runs[n++];
        *run = (fold_run){.begin = i, .value = s->values[i * k + place], .hash = 0x9E3779B97F4A7C15u};
        for (; i < end && s->values[i * k + place] == run->value; i++)
            for (uint64_t p = place + 1; p < k; p++) {
                run->hash = (run->hash ^ s->values[i * k + p]) * 0xD6E8FEB86659FD93u;
                run->hash ^= run->hash >> 32;
            }
        run->end = i;
        run->hash += run->end - run->begin;
    }
    return n;
}

/* Runs with equal rests become one set each; then the same one place further. Depth is at most FOLD_MOST. */
static void fold_emit(fold_state *s, uint64_t begin, uint64_t end, uint32_t place) {
    if (place == s->numbers.count) {
        fold_line(s, s->members[begin]);
        return;
    }
    fold_run *runs = heft__alloc(&heft__default_allocator, (end - begin) * sizeof *runs);
    if (!runs) {
        s->failed = true;
        return;
    }
    uint64_t n = fold_split(s, begin, end, place, runs);
    qsort(runs, (size_t)n, sizeof *runs, fold_by_hash);
    for (uint64_t i = 0, leader = 0; i < n; i++) {
        if (i == 0 || runs[i].hash != runs[leader].hash || !fold_same_rest(s, &runs[leader], &runs[i], place)) leader = i;
        runs[i].leader = runs[leader].begin;
    }
    qsort(runs, (size_t)n, sizeof *runs, fold_by_leader);
    for (uint64_t i = 0, j; i < n && !s->failed; i = j) {
        for (j = i + 1; j < n && runs[j].leader == runs[i].leader;) j++;
        s->sets[place] = (fold_set){.runs = runs + i, .count = j - i};
        fold_emit(s, runs[i].begin, runs[i].end, place + 1);
    }
    heft__free(&heft__default_allocator, runs, (end - begin) * sizeof *runs);
}

static bool fold_group_lines(fold_state *s, uint64_t begin, uint64_t count) {
    if (heft_archive_get(s->archive, s->members[begin], &s->first, NULL) != HEFT_OK) return false;
    fold_find_numbers(s->first.name, s->first.name_len, &s->numbers);
    uint64_t k = s->numbers.count, nbytes = count * k * sizeof *s->values;
    if (count == 1) s->numbers.count = 0; /* its name as it is */
    if (count > 1) {
        s->values = heft__alloc(&heft__default_allocator, nbytes);
        if (!s->values) return false;
    }
    for (uint64_t i = 0; i < count && count > 1; i++) {
        heft_tensor t;
        fold_numbers numbers;
        if (heft_archive_get(s->archive, s->members[begin + i], &t, NULL) != HEFT_OK) return false;
        fold_find_numbers(t.name, t.name_len, &numbers);
        for (uint64_t p = 0; p < k; p++) s->values[i * k + p] = numbers.value[p];
    }
    /* Runs count from the group's first member; members and values are addressed from there. */
    s->members += begin;
    fold_emit(s, 0, count, 0);
    s->members -= begin;
    heft__free(&heft__default_allocator, s->values, nbytes);
    s->values = NULL;
    return !s->failed;
}

static int fold_by_place(const void *a, const void *b) {
    const cli_fold_line *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool fold_allocate(fold_state *s) {
    const heft_allocator *a = &heft__default_allocator;
    uint64_t total = heft_archive_count(s->archive);
    s->place = heft__alloc(a, total * sizeof *s->place);
    s->natural = heft__alloc(a, s->nids * sizeof *s->natural);
    s->group_of = heft__alloc(a, s->nids * sizeof *s->group_of);
    s->members = heft__alloc(a, s->nids * sizeof *s->members);
    return s->place && s->natural && s->group_of && s->members && heft__hash_index_init(&s->index, a, 0);
}

static bool fold_run_all(fold_state *s) {
    const uint64_t *order;
    uint64_t total = heft_archive_count(s->archive), n = 0, at = 0;
    if (heft_archive_order(s->archive, HEFT_ORDER_NATURAL, &order, s->err) != HEFT_OK) return false;
    for (uint64_t i = 0; i < total; i++) s->place[i] = HEFT_NONE;
    for (uint64_t i = 0; i < s->nids; i++) s->place[s->ids[i]] = i;
    for (uint64_t i = 0; i < total; i++)
        if (s->place[order[i]] != HEFT_NONE) s->natural[n++] = order[i];
    for (uint64_t i = 0; i < n; i++)
        if (!fold_sort_in(s, i)) return false;
    for (uint64_t g = 0; g < s->ngroups; g++) { /* `filled` starts as the place of the group's first member */
        s->groups[g].filled = at;
        at += s->groups[g].count;
    }
    for (uint64_t i = 0; i < n; i++) s->members[s->groups[s->group_of[i]].filled++] = s->natural[i];
    for (uint64_t g = 0; g < s->ngroups; g++)
        if (!fold_group_lines(s, s->groups[g].filled - s->groups[g].count, s->groups[g].count)) return false;
    if (s->out->count) qsort(s->out->lines, (size_t)s->out->count, sizeof *s->out->lines, fold_by_place);
    return true;
}

heft_status cli_fold_make(const heft_archive *archive, const uint64_t *ids, uint64_t nids, cli_fold *out,
                          heft_error *err) {
    const heft_allocator *a = &heft__default_allocator;
    fold_state s = {.archive = archive, .err = err, .out = out, .ids = ids, .nids = nids};
    *out = (cli_fold){0};
    heft__arena_init(&out->arena, a);
    bool done = fold_allocate(&s) && fold_run_all(&s);
    heft__free(a, s.place, heft_archive_count(archive) * sizeof *s.place);
    heft__free(a, s.natural, nids * sizeof *s.natural);
    heft__free(a, s.group_of, nids * sizeof *s.group_of);
    heft__free(a, s.members, nids * sizeof *s.members);
    heft__free(a, s.groups, s.groups_capacity * sizeof *s.groups);
    heft__hash_index_free(&s.index);
    cli_text_free(&s.form);
    cli_text_free(&s.other);
    cli_text_free(&s.label);
    if (done) return HEFT_OK;
    cli_fold_free(out);
    return heft__fail_memory(err, nids);
}

void cli_fold_free(cli_fold *fold) {
    heft__free(&heft__default_allocator, fold->lines, fold->capacity * sizeof *fold->lines);
    heft__arena_free(&fold->arena);
    *fold = (cli_fold){0};
}
