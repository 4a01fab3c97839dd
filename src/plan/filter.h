/* plan: which tensors one process wants. Pure: names, shapes and the caller's wishes in, one rule a tensor out. */
#ifndef HEFT_PLAN_FILTER_H
#define HEFT_PLAN_FILTER_H

#include "base/sort.h"
#include "catalog/catalog.h"
#include "heft/filters.h"

/* ---- experts (filter_expert.c) ---- */

/* What a name says about an expert. */
typedef struct heft__expert {
    bool found;     /* it holds an expert's number */
    bool too_large; /* of 2^64 or more: `index` is UINT64_MAX */
    bool fused;     /* it lies under a segment `experts`, but holds no number */
    uint64_t index;
    size_t before;  /* bytes of the name before the dot of that segment */
} heft__expert;

/* By the rule SEGMENT or DOTTED. O(len). */
void heft__expert_find(heft_expert_name rule, const char *name, size_t len, heft__expert *out);
/* The first all-digit segment among the `len` bytes, HEFT_NONE if there is none (or none below 2^64). */
uint64_t heft__expert_layer(const char *name, size_t len);
/* True if `rank` of `world` owns expert `index` of n. rank < world, index < n; the placement is not DEFAULT. */
bool heft__expert_owned(heft_placement placement, uint64_t rank, uint64_t world, uint64_t n, uint64_t index);
/* Ranks that own no expert of n > 0. */
uint64_t heft__expert_idle(heft_placement placement, uint64_t world, uint64_t n);

/* A set of (layer, expert), sorted, each once. */
typedef struct heft__expert_list {
    heft__sort_key *keys; /* layer, expert; rank: 1 once it has been found */
    uint64_t n, capacity, nfound;
} heft__expert_list;

heft_status heft__expert_list_make(heft__expert_list *list, const heft_expert_id *ids, size_t nids,
                                   const heft_allocator *alloc, heft_error *err);
void heft__expert_list_free(heft__expert_list *list, const heft_allocator *alloc);
/* Whether the expert of a name is in the list; notes that it was asked for. O(log n). */
bool heft__expert_list_has(heft__expert_list *list, const heft__expert *expert, const char *name);

/* ---- the filter (filter.c, filter_report.c) ---- */

/* A glob, prefix or suffix of the caller. Of a glob also what can be compared without matching: most have one `*`. */
typedef struct heft__filter_text {
    const char *text;
    size_t len;
    size_t head, tail; /* literal bytes that each match starts and ends with */
    bool one_star;     /* nothing but head, `*`, tail */
    bool matched;      /* some tensor */
} heft__filter_text;

typedef struct heft__filter_list {
    heft__filter_text *items;
    size_t n, nmatched;
    const char *what; /* "include glob" */
} heft__filter_list;

enum { HEFT__FILTER_EXCLUDE, HEFT__FILTER_INCLUDE, HEFT__FILTER_DEFER, HEFT__FILTER_CUT, HEFT__FILTER_GLOBS,
       HEFT__FILTER_REPLICATED = HEFT__FILTER_GLOBS, HEFT__FILTER_HEAVY, HEFT__FILTER_LISTS };

struct heft_filter_result {
    heft_allocator alloc;
    const heft_archive *archive;
    uint8_t *rules;  /* by id */
    uint32_t *cuts;  /* by id: the tensor-parallel rule that matched + 1, 0: none; NULL: nothing is cut */
    int64_t *axes;   /* of the tensor-parallel rules */
    size_t naxes;
    uint64_t *ids;   /* the kept, then the deferred ones */
    uint64_t nids;
    heft_split split;
    uint64_t tp_rank, tp_world;
    heft_rule_report reports[HEFT_RULE_COUNT];
    heft_filter_summary sum;
    heft_report *warnings;
};

/* A filter at work: the caller's wishes with all defaults filled in, and what the pass has found. */
typedef struct heft__filter_pass {
    heft_filter wish;
    heft_filter_result *result;
    heft__filter_text *texts; /* of all lists */
    uint64_t ntexts;
    heft__filter_list lists[HEFT__FILTER_LISTS];
    heft__expert_list experts;
    uint64_t largest_out_of_range;
} heft__filter_pass;

/* heft_filter_apply. `filter` is a checked copy; *out is a complete result. */
heft_status heft__filter_apply(const heft_archive *archive, const heft_filter *filter, const heft_allocator *alloc,
                               heft_filter_result **out, heft_error *err);

/* Writes what the caller should know into the result's warnings. False: out of memory. */
bool heft__filter_warn(heft__filter_pass *pass);
/* Refuses demanded tensors that are withheld or not there. */
heft_status heft__filter_demand(const heft__filter_pass *pass, heft_error *err);
/* INVALID_ARGUMENT for ranks without a number of experts, offering the number that the names suggest. */
heft_status heft__filter_no_experts(const heft__filter_pass *pass, heft_error *err);

#endif
