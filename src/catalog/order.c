/* catalog: the orders of listing, sorted by radix on pieces of the names, made on demand and published once. */
#include "base/error.h"
#include "catalog/catalog.h"

/* How it works. A group is a run of records whose names agree so far. Of each name of a group the next piece is packed
 * into a 64-bit key, such that keys compare as the names do; the group is sorted by key and falls into smaller groups.
 * In natural order a number is written as '0', how many digits it has without leading zeros, and these digits, so that
 * bytes compare as numbers do: next to any other byte a number sorts as a digit does, and shorter ones come first.
 * What the names of a group share is skipped first, so that most passes divide the group; the skip is bounded, so that
 * hostile names cannot have the same bytes compared again and again. */

typedef struct order_record {
    uint64_t key;
    const char *at;  /* rest of the name */
    uint32_t left;   /* its bytes */
    uint32_t number; /* whose */
} order_record;

typedef enum order_mode { ORDER_BYTES, ORDER_TEXT, ORDER_NUMBER, ORDER_DIGITS } order_mode;

typedef struct order_group {
    uint32_t first, count;
    uint32_t digits; /* under ORDER_DIGITS: digits left, the same for all */
    order_mode mode;
} order_group;

typedef struct order_job {
    const heft_archive *archive;
    order_record *records, *scratch;
    order_group *groups;
    uint64_t ngroups, capacity;
} order_job;

/* Last byte of a key: how many bytes it holds if the name ends there, or what follows them. */
enum {
    ORDER_PIECE = 7,
    ORDER_MORE = 8,          /* more of the name */
    ORDER_BEFORE_NUMBER = 9, /* a number of which the key holds the '0', and 255 if it has that many digits or more */
    ORDER_BEFORE_DIGITS = 16 /* and n: the digits of the number whose digit count is the n-th byte, the last one */
};
enum { ORDER_INSERTION_MAX = 32, ORDER_SKIP_MAX = 32, ORDER_SAMPLES = 8, ORDER_AHEAD = 12, ORDER_MANY_DIGITS = 255 };

static inline bool order_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static inline uint64_t order_load(const char *p) {
    const uint8_t *b = (const uint8_t *)p;
    return (uint64_t)b[0] << 56 | (uint64_t)b[1] << 48 | (uint64_t)b[2] << 40 | (uint64_t)b[3] << 32 |
           (uint64_t)b[4] << 24 | (uint64_t)b[5] << 16 | (uint64_t)b[6] << 8 | (uint64_t)b[7];
}

static inline void order_advance(order_record *r, uint32_t n) {
    r->at += n;
    r->left -= n;
}

/* The next n bytes, at most 7, with `last` behind them. */
static inline void order_key_pack(order_record *r, uint32_t n, uint64_t last) {
    uint64_t key = last;
    for (uint32_t i = 0; i < n; i++) key |= (uint64_t)(uint8_t)r->at[i] << (56 - 8 * i);
    r->key = key;
    order_advance(r, n);
}

static inline void order_key_of_bytes(order_record *r) {
    if (r->left > ORDER_PIECE) {
        r->key = (order_load(r->at) & ~(uint64_t)0xFF) | ORDER_MORE;
        order_advance(r, ORDER_PIECE);
    } else {
        order_key_pack(r, r->left, r->left);
    }
}

/* Digits of the number at *at, of which *at then is past the leading zeros. */
static uint32_t order_count_digits(const char **at, const char *end) {
    const char *p = *at;
    while (p < end && *p == '0') p++;
    *at = p;
    while (p < end && order_is_digit(*p)) p++;
    return (uint32_t)(p - *at);
}

static void order_key_with_numbers(order_record *r) {
    const char *p = r->at, *end = p + r->left;
    uint64_t key = 0, last = ORDER_MORE;
    uint32_t n = 0;
    while (n < ORDER_PIECE && p < end && last == ORDER_MORE) {
        bool number = order_is_digit(*p);
        key |= (uint64_t)(uint8_t)(number ? '0' : *p) << (56 - 8 * n++);
        if (!number) {
            p++;
        } else if (n == ORDER_PIECE) {
            last = ORDER_BEFORE_NUMBER;
        } else {
            uint32_t digits = order_count_digits(&p, end);
            bool many = digits >= ORDER_MANY_DIGITS;
            key |= (uint64_t)(many ? ORDER_MANY_DIGITS : digits) << (56 - 8 * n++);
            if (many)
                last = ORDER_BEFORE_NUMBER;
            else if (digits > ORDER_PIECE - n)
                last = ORDER_BEFORE_DIGITS + n;
            else
                for (; digits; digits--) key |= (uint64_t)(uint8_t)*p++ << (56 - 8 * n++);
        }
    }
    if (p == end && last == ORDER_MORE) last = n;
    r->key = key | last;
    r->left = (uint32_t)(end - p);
    r->at = p;
}

static inline void order_key_of_text(order_record *r) {
    if (r->left > ORDER_PIECE) {
        uint64_t piece = order_load(r->at), t = piece ^ UINT64_C(0x3030303030303030);
        /* The high bit of a byte stays clear only if the byte is a digit. */
        uint64_t others = ((t & UINT64_C(0x7F7F7F7F7F7F7F7F)) + UINT64_C(0x7676767676767676)) | t;
        if ((others | 0x80) == (others | UINT64_C(0x8080808080808080))) {
            r->key = (piece & ~(uint64_t)0xFF) | ORDER_MORE;
            order_advance(r, ORDER_PIECE);
            return;
        }
    }
    order_key_with_numbers(r);
}

/* A number that its key announced only: how many digits it has. */
static inline void order_key_of_number(order_record *r) {
    const char *end = r->at + r->left;
    r->key = order_count_digits(&r->at, end);
    r->left = (uint32_t)(end - r->at);
}

/* How many bytes two records share, at most `most`. */
static inline uint32_t order_shared_by(const order_record *a, const order_record *b, uint32_t most) {
    uint32_t n = 0;
    if (a->left < most) most = a->left;
    if (b->left < most) most = b->left;
    while (n + 8 <= most) {
        uint64_t differs = order_load(a->at + n) ^ order_load(b->at + n);
        if (differs) return n + (uint32_t)__builtin_clzll(differs) / 8;
        n += 8;
    }
    while (n < most && a->at[n] == b->at[n]) n++;
    return n;
}

/* How many bytes every `step`-th record and the last share with the first, at most `most`. */
static uint32_t order_shared(const order_record *r, uint32_t count, uint32_t step, uint32_t most) {
    uint32_t shared = order_shared_by(r, r + count - 1, most);
    for (uint32_t i = step; i < count && shared; i += step) shared = order_shared_by(r, r + i, shared);
    return shared;
}

/* A number is never cut: names that share its first digits may have different ones behind them. */
static uint32_t order_whole_numbers(const order_record *r, uint32_t shared, order_mode mode) {
    while (mode == ORDER_TEXT && shared && order_is_digit(r->at[shared - 1])) shared--;
    return shared;
}

static inline void order_make_key(order_record *r, const order_group *group) {
    switch (group->mode) {
    case ORDER_BYTES: order_key_of_bytes(r); break;
    case ORDER_TEXT: order_key_of_text(r); break;
    case ORDER_NUMBER: order_key_of_number(r); break;
    case ORDER_DIGITS: order_key_pack(r, group->digits < ORDER_PIECE ? group->digits : ORDER_PIECE, 0); break;
    }
}

/* Skips what the group shares and makes the keys. How much is shared is guessed from some records and looked at again
 * with the others while their names are at hand: names lie far apart, and reading them is what takes the time. */
static void order_make_keys(order_record *r, order_record *before, const order_group *group) {
    uint32_t count = group->count, step = count / ORDER_SAMPLES + 1, skip = 0;
    bool text = group->mode == ORDER_TEXT || group->mode == ORDER_BYTES;
    const order_record first = *r;
    if (text) skip = order_whole_numbers(r, order_shared(r, count, step, ORDER_SKIP_MAX), group->mode);
    for (uint32_t i = 0; i < count; i++) {
        if (i + ORDER_AHEAD < count) __builtin_prefetch(r[i + ORDER_AHEAD].at);
        if (skip && order_shared_by(&first, &r[i], skip) < skip) {
            for (; i; i--) r[i - 1] = before[i - 1]; /* a wrong guess: once more with the truth */
            skip = order_whole_numbers(r, order_shared(r, count, 1, skip), group->mode);
        }
        before[i] = r[i];
        order_advance(&r[i], skip);
        order_make_key(&r[i], group);
    }
}

static void order_sort_by_insertion(order_record *r, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        order_record x = r[i];
        uint32_t j = i;
        for (; j && r[j - 1].key > x.key; j--) r[j] = r[j - 1];
        r[j] = x;
    }
}

/* Stable; bytes that are the same in all keys cost nothing. */
static void order_sort_by_radix(order_record *r, order_record *scratch, uint32_t count, uint64_t varying) {
    order_record *from = r, *to = scratch;
    for (uint32_t shift = 0; shift < 64; shift += 8) {
        if (!(varying >> shift & 0xFF)) continue;
        uint32_t starts[256] = {0}, sum = 0;
        for (uint32_t i = 0; i < count; i++) starts[from[i].key >> shift & 0xFF]++;
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t n = starts[i];
            starts[i] = sum;
            sum += n;
        }
        for (uint32_t i = 0; i < count; i++) to[starts[from[i].key >> shift & 0xFF]++] = from[i];
        order_record *swap = from;
        from = to;
        to = swap;
    }
    if (from != r)
        for (uint32_t i = 0; i < count; i++) r[i] = from[i];
}

static void order_sort(order_record *r, order_record *scratch, uint32_t count) {
    uint64_t varying = 0;
    bool sorted = true;
    for (uint32_t i = 1; i < count; i++) {
        varying |= r[i].key ^ r[0].key;
        sorted &= r[i - 1].key <= r[i].key;
    }
    if (sorted) return;
    if (count <= ORDER_INSERTION_MAX)
        order_sort_by_insertion(r, count);
    else
        order_sort_by_radix(r, scratch, count, varying);
}

static void order_start_again(order_job *job, uint32_t first, uint32_t count) {
    for (order_record *r = job->records + first; count; r++, count--) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(job->archive, r->number, &file);
        r->at = entry->name;
        r->left = entry->name_len;
    }
}

/* Names that agree up to here go on as a group, unless they have ended: then they are equal, or, in natural order,
 * differ in leading zeros only and are sorted again by their bytes. */
static bool order_push(order_job *job, const order_group *parent, uint32_t first, uint32_t count) {
    order_group group = {first, count, 0, parent->mode};
    uint64_t key = job->records[first].key;
    uint32_t last = (uint32_t)key & 0xFF;
    switch (parent->mode) {
    case ORDER_BYTES:
        if (last < ORDER_MORE) return true;
        break;
    case ORDER_TEXT:
        if (last == ORDER_MORE) break;
        if (last < ORDER_MORE) {
            group.mode = ORDER_BYTES;
            order_start_again(job, first, count);
        } else if (last == ORDER_BEFORE_NUMBER) {
            group.mode = ORDER_NUMBER;
        } else {
            group.mode = ORDER_DIGITS;
            group.digits = (uint32_t)(key >> (64 - 8 * (last - ORDER_BEFORE_DIGITS))) & 0xFF;
        }
        break;
    case ORDER_NUMBER:
        group.digits = (uint32_t)key;
        group.mode = group.digits ? ORDER_DIGITS : ORDER_TEXT;
        break;
    case ORDER_DIGITS:
        group.digits = parent->digits > ORDER_PIECE ? parent->digits - ORDER_PIECE : 0;
        if (!group.digits) group.mode = ORDER_TEXT;
        break;
    }
    if (!heft__grow(&job->archive->alloc, (void **)&job->groups, &job->capacity, job->ngroups, sizeof group, 64))
        return false;
    job->groups[job->ngroups++] = group;
    return true;
}

static bool order_divide(order_job *job, order_group group) {
    order_record *r = job->records + group.first;
    order_make_keys(r, job->scratch, &group);
    order_sort(r, job->scratch, group.count);
    for (uint32_t i = 0, n; i < group.count; i += n) {
        n = 1;
        while (i + n < group.count && r[i + n].key == r[i].key) n++;
        if (n > 1 && !order_push(job, &group, group.first + i, n)) return false;
    }
    return true;
}

/* Fills ids[] with all ids sorted by name. False: out of memory. */
static bool order_ids(const heft_archive *archive, bool natural, uint64_t *ids) {
    uint64_t n = archive->ntensors;
    order_job job = {.archive = archive};
    job.records = heft__alloc(&archive->alloc, n * sizeof *job.records);
    job.scratch = heft__alloc(&archive->alloc, n * sizeof *job.scratch);
    bool ok = job.records && job.scratch;
    for (uint64_t i = 0; ok && i < n; i++) {
        uint32_t file;
        const heft__entry *entry = heft__archive_entry(archive, i, &file);
        job.records[i] = (order_record){0, entry->name, entry->name_len, (uint32_t)i};
    }
    order_group all = {0, (uint32_t)n, 0, natural ? ORDER_TEXT : ORDER_BYTES};
    if (ok && n > 1) ok = order_divide(&job, all);
    while (ok && job.ngroups) ok = order_divide(&job, job.groups[--job.ngroups]);
    for (uint64_t i = 0; ok && i < n; i++) ids[i] = job.records[i].number;
    heft__free(&archive->alloc, job.groups, job.capacity * sizeof *job.groups);
    heft__free(&archive->alloc, job.scratch, n * sizeof *job.scratch);
    heft__free(&archive->alloc, job.records, n * sizeof *job.records);
    return ok;
}

heft_status heft__archive_order(const heft_archive *archive, heft_order order, const uint64_t **out, heft_error *err) {
    /* The one thing of an archive that is made late. Whoever is first publishes it, the others drop theirs. */
    _Atomic(uint64_t *) *place = (_Atomic(uint64_t *) *)&archive->orders[order];
    uint64_t *ids = atomic_load_explicit(place, memory_order_acquire), *known = NULL;
    if (!ids) {
        uint64_t nbytes = archive->ntensors * sizeof *ids;
        ids = heft__alloc(&archive->alloc, nbytes);
        bool ok = ids != NULL;
        for (uint64_t i = 0; ok && order == HEFT_ORDER_FILE && i < archive->ntensors; i++) ids[i] = i;
        if (ok && order != HEFT_ORDER_FILE) ok = order_ids(archive, order == HEFT_ORDER_NATURAL, ids);
        if (!ok) {
            heft__free(&archive->alloc, ids, nbytes);
            return heft__fail_memory(err, nbytes);
        }
        if (!atomic_compare_exchange_strong_explicit(place, &known, ids, memory_order_acq_rel, memory_order_acquire)) {
            heft__free(&archive->alloc, ids, nbytes);
            ids = known;
        }
    }
    *out = ids;
    return HEFT_OK;
}
