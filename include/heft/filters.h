/* heft/filters.h: which tensors of an archive one process wants, and which part of each. Names and
 * shapes decide; no byte of a tensor is read. The rules, with tables and examples: docs/filters.md.
 *
 *     heft_filter want = {.struct_size = sizeof want, .preset = HEFT_PRESET_VLLM,
 *                         .ep_rank = 3, .ep_world = 8, .num_experts = 512};
 *     heft_filter_result *mine;
 *     heft_buffer bytes; // released by heft_buffer_release
 *     if (heft_filter_apply(archive, &want, &mine, &err) == HEFT_OK) {
 *         uint64_t n;
 *         const uint64_t *ids = heft_filter_kept(mine, &n);
 *         uint64_t *places = malloc(n * sizeof *places); // of tensor ids[i] in bytes.data
 *         heft_read_many(archive, ids, n, NULL, &bytes, places, NULL, &err);
 *     }
 *
 * With tensor-parallel rules, a view for each kept id goes to heft_plan_views instead:
 *
 *     for (uint64_t i = 0; i < n; i++) heft_filter_view(mine, ids[i], &views[i], &err);
 */
#ifndef HEFT_FILTERS_H
#define HEFT_FILTERS_H

#include "heft/views.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* What becomes of a tensor. */
typedef uint32_t heft_outcome;
#define HEFT_OUTCOME_KEPT UINT32_C(0)
#define HEFT_OUTCOME_WITHHELD UINT32_C(1) /* not wanted: never read */
#define HEFT_OUTCOME_DEFERRED UINT32_C(2) /* located, not read now */

/* The rules in the order in which they are asked: the first that applies decides, so each tensor
 * has exactly one. Constant, word as reports print it, outcome. */
#define HEFT_RULE_TABLE(X)                                                                                             \
    X(NOT_IN_INDEX, "not-in-index", WITHHELD)               /* the index does not name it for its file: not listed */  \
    X(REPLACED, "replaced", WITHHELD)                       /* an overlay has a tensor of its name: not listed */      \
    X(OVERLAY, "overlay", KEPT)                             /* an overlay's own: no rule below withholds it */         \
    X(EXCLUDE, "exclude", WITHHELD)                         /* an exclude glob matches */                              \
    X(NOT_INCLUDED, "not-included", WITHHELD)               /* there are include globs, none matches */                \
    X(VISION, "vision", WITHHELD)                           /* skip_vision: model.visual.*, model.vision*, visual.* */ \
    X(MTP, "mtp", WITHHELD)                                 /* skip_mtp: mtp.* */                                      \
    X(ACTIVATION_SCALE, "activation-scale", WITHHELD)       /* skip_activation_scales: *.input_scale */                \
    X(EXPERT_PLAN, "expert-plan", WITHHELD)                 /* not in the list of experts, or keep_expert says no */   \
    X(REMOTE_EXPERT, "remote-expert", WITHHELD)             /* another rank's expert */                                \
    X(EXPERT_OUT_OF_RANGE, "expert-out-of-range", WITHHELD) /* an expert of no rank: index >= num_experts */           \
    X(CALLBACK, "callback", WITHHELD)                       /* keep says no */                                         \
    X(DEFER, "defer", DEFERRED)                             /* a defer glob matches, or the preset's */                \
    X(KEPT, "kept", KEPT)                                   /* otherwise */

typedef uint32_t heft_rule;
enum {
#define HEFT_RULE_ENUM(constant, word, outcome) HEFT_RULE_##constant,
    HEFT_RULE_TABLE(HEFT_RULE_ENUM)
#undef HEFT_RULE_ENUM
        HEFT_RULE_COUNT
};

/* The word of a rule ("remote-expert"); "unknown" for a number that is none.
 * Returns a static string.
 * Thread rule: any thread. */
HEFT_API const char *heft_rule_name(heft_rule rule);

/* What becomes of the tensors that a rule decides; HEFT_OUTCOME_WITHHELD for a number that is
 * none.
 * Thread rule: any thread. */
HEFT_API heft_outcome heft_rule_outcome(heft_rule rule);

/* ---- the filter -------------------------------------------------------------------------------------------------- */

/* Where an expert's number stands in a name. */
typedef uint32_t heft_expert_name;
#define HEFT_EXPERT_NAME_DEFAULT UINT32_C(0) /* the preset's, else segment */
/* The name is split at dots; the first segment `experts` that is not the last is followed by the
 * number: ASCII digits, one leading + allowed, below 2^64. Anything else there: no number. */
#define HEFT_EXPERT_NAME_SEGMENT UINT32_C(1)
/* The first ".experts.", digits, "." anywhere in the name. A number of 2^64 or more is out of
 * range. */
#define HEFT_EXPERT_NAME_DOTTED UINT32_C(2)

/* Which rank owns which of n experts, over w ranks. */
typedef uint32_t heft_placement;
#define HEFT_PLACEMENT_DEFAULT UINT32_C(0)         /* the preset's, else last-takes-rest */
#define HEFT_PLACEMENT_LAST_TAKES_REST UINT32_C(1) /* n / w consecutive ones each, the last rank the rest too */
#define HEFT_PLACEMENT_FIRST_TAKE_REST UINT32_C(2) /* consecutive ones, the first n % w ranks have one more */
#define HEFT_PLACEMENT_ROUND_ROBIN UINT32_C(3)     /* rank r has r, r + w, r + 2w ... */

/* What is withheld of another rank's expert. */
typedef uint32_t heft_expert_scope;
#define HEFT_EXPERT_SCOPE_DEFAULT UINT32_C(0) /* the preset's, else all */
#define HEFT_EXPERT_SCOPE_ALL UINT32_C(1)     /* everything under it: weights, scales, zero points */
#define HEFT_EXPERT_SCOPE_HEAVY UINT32_C(2)   /* names with a heavy suffix only: small scales stay on all ranks */

/* Conventions of two serving programs, as defaults for the fields that are left at zero. */
typedef uint32_t heft_preset;
#define HEFT_PRESET_NONE UINT32_C(0)
/* Segment, last-takes-rest, all tensors, replicated mtp.; defers names that hold
 * "ngram_embeddings.embedders." and end in ".weight". Its overlay is a matter of opening: atlas_overlay of
 * heft_open_options. */
#define HEFT_PRESET_ATLAS UINT32_C(1)
/* Dotted, first-take-rest, heavy weights only, nothing replicated. vLLM itself does not filter
 * under expert load balancing: whether to filter then is the caller's decision. */
#define HEFT_PRESET_VLLM UINT32_C(2)

/* Axes by name. A matrix is seen as it is stored: of an [out, in] weight a row is one output. */
#define HEFT_TP_ROWS INT64_C(-2)    /* whole rows: the last dim but one is cut */
#define HEFT_TP_COLUMNS INT64_C(-1) /* a part of every row: the last dim is cut */

/* A tensor-parallel rule: tensors that `glob` matches are cut along `axis` (negative from the
 * end). */
typedef struct heft_tp_rule {
    const char *glob;
    int64_t axis;
} heft_tp_rule;

/* An expert of a layer. */
typedef struct heft_expert_id {
    uint64_t layer; /* the first all-digit segment of a name before the expert's; HEFT_NONE: of names without one */
    uint64_t expert;
} heft_expert_id;

/* What one process wants. Zero in any field is its default; set struct_size =
 * sizeof(heft_filter); NULL is all defaults, which keeps everything. Lists are counted arrays of
 * strings that end in NUL. Globs: `*` any run (dots too), `?` one byte, `[...]` set, `\` escape;
 * the whole name matches. Prefixes and suffixes are compared byte by byte. Nothing is referred to
 * after the call. */
typedef struct heft_filter {
    size_t struct_size;
    const char *const *include; /* globs; none: all */
    size_t ninclude;
    const char *const *exclude; /* globs */
    size_t nexclude;
    const char *const *defer; /* globs */
    size_t ndefer;
    const char *const *demand; /* names of tensors that must not be withheld */
    size_t ndemand;
    heft_preset preset;
    heft_expert_name expert_name;
    heft_placement placement;
    heft_expert_scope expert_scope;
    uint64_t ep_rank;     /* of the expert-parallel group */
    uint64_t ep_world;    /* its size; 0: 1, which withholds no expert */
    uint64_t num_experts; /* of one layer; needed where ep_world is above 1 */
    const char *const *replicated; /* prefixes kept on every rank, experts included; NULL: the preset's, else "mtp." */
    size_t nreplicated;            /* 0 with a list: none */
    const char *const *heavy; /* suffixes of the heavy scope; NULL: ".weight", ".weight_packed" */
    size_t nheavy;
    bool skip_vision, skip_mtp, skip_activation_scales; /* withhold by the rules of these names */
    bool strict;                                        /* warnings are errors */
    heft_split tp_split;          /* how a dim that tp_world does not divide is cut */
    uint64_t tp_rank;             /* of the tensor-parallel group */
    uint64_t tp_world;            /* its size; 0: 1, which cuts nothing */
    const heft_tp_rule *tp_rules; /* the first that matches a name counts */
    size_t ntp_rules;
    /* False withholds. Called from the caller's thread in id order, for what the rules before it
     * left. May be NULL. */
    bool (*keep)(void *ctx, const heft_tensor *tensor);
    void *keep_ctx;
    /* The same for tensors of an expert, at any world size. `layer`: the first all-digit segment
     * of the name before the expert's, HEFT_NONE if there is none. `expert` of 2^64 or more is
     * given as UINT64_MAX. May be NULL. */
    bool (*keep_expert)(void *ctx, const heft_tensor *tensor, uint64_t layer, uint64_t expert);
    void *keep_expert_ctx;
    /* The experts to keep, in any order, at any world size; the tensors of all others are withheld, as
     * if keep_expert had said no. One (layer, expert) stands for all names that hold both numbers: mtp.layers.0 and
     * model.layers.0 alike. NULL: no such list; a list with the count 0 keeps no expert. */
    const heft_expert_id *experts;
    size_t nexperts;
    const heft_allocator *allocator; /* of the result; copied; NULL: the archive's */
} heft_filter;

/* ---- applying it ------------------------------------------------------------------------------------------------- */

/* What a filter decided about an archive. Frozen. */
typedef struct heft_filter_result heft_filter_result;

/* Decides about every tensor of the archive, in one pass of O(tensors x globs). The archive must
 * outlive the result.
 * Errors: INVALID_ARGUMENT (a malformed glob, with its offset; a rank that is not below its world;
 * ep_world above 1 without num_experts: the message offers the number that the names suggest; a
 * demanded tensor that is withheld: the message names the rule; a cut along an axis that a
 * matching tensor lacks, or that tp_world does not divide), NOT_FOUND (a demanded tensor that is
 * not there), UNSUPPORTED and LIMIT (a cut of what cannot be viewed, as heft_view_of),
 * OUT_OF_MEMORY. Strict only: NOT_FOUND (a glob that matches no tensor, a listed expert that no
 * name holds), LIMIT (an expert out of range), INVALID_ARGUMENT (ranks that own no expert); `more`
 * counts further warnings.
 * Thread rule: any thread. */
HEFT_API heft_status heft_filter_apply(const heft_archive *archive, const heft_filter *filter, heft_filter_result **out,
                                       heft_error *err);

/* Frees a result; NULL does nothing.
 * Thread rule: when no other thread uses it. */
HEFT_API void heft_filter_result_free(heft_filter_result *result);

/* The ids kept / deferred, ascending: *nids of them, which live as long as the result. They are
 * what heft_read_many takes.
 * Thread rule: any thread. */
HEFT_API const uint64_t *heft_filter_kept(const heft_filter_result *result, uint64_t *nids);
HEFT_API const uint64_t *heft_filter_deferred(const heft_filter_result *result, uint64_t *nids);

/* The rule that decided about each tensor: a heft_rule in one byte for each id of the archive.
 * Lives as long as the result.
 * Thread rule: any thread. */
HEFT_API const uint8_t *heft_filter_rules(const heft_filter_result *result);

/* This rank's part of tensor `id`: the whole of it, or its cut by the first tensor-parallel rule
 * that matches. Deferred tensors have one too.
 * Errors: INVALID_ARGUMENT (id), NOT_FOUND (withheld: the message names the rule), and as
 * heft_view_of.
 * Thread rule: any thread. */
HEFT_API heft_status heft_filter_view(const heft_filter_result *result, uint64_t id, heft_view *out, heft_error *err);

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* What one rule decided. Over all rules, tensors and bytes sum up to what the files hold, hidden
 * fillers aside. */
typedef struct heft_rule_report {
    uint64_t ntensors;
    uint64_t nbytes;        /* of whole tensors */
    const char *first_name; /* of its first tensor in file order, lives as long as the archive; NULL: none */
    size_t first_name_len;
} heft_rule_report;

/* Fills *out for a rule.
 * Errors: INVALID_ARGUMENT (no such rule).
 * Thread rule: any thread. */
HEFT_API heft_status heft_filter_report(const heft_filter_result *result, heft_rule rule, heft_rule_report *out,
                                        heft_error *err);

/* Sums of a result. Numbers of experts are those of all tensors that the archive lists, whatever
 * decided about them. */
typedef struct heft_filter_summary {
    uint64_t ntensors, nbytes;                   /* of all files, hidden fillers aside */
    uint64_t kept_ntensors, kept_nbytes;         /* whole tensors */
    uint64_t withheld_ntensors, withheld_nbytes;
    uint64_t deferred_ntensors, deferred_nbytes;
    uint64_t part_nbytes;                        /* kept bytes that this rank's cuts leave: what a read delivers */
    uint64_t expert_ntensors, expert_nbytes;     /* tensors whose name holds an expert's number */
    uint64_t largest_expert;                     /* the largest such number (too large: 2^64 - 1); HEFT_NONE: none */
    uint64_t fused_ntensors, fused_nbytes;       /* named under `experts` without a number: kept whole on every rank */
    uint64_t idle_ranks;                         /* ranks of ep_world that own no expert */
    uint64_t unmatched;                          /* globs, and listed experts, that no tensor's name matches */
} heft_filter_summary;

/* The sums.
 * Thread rule: any thread. */
HEFT_API void heft_filter_summarize(const heft_filter_result *result, heft_filter_summary *out);

/* What the caller should know: warnings (globs that matched nothing, listed experts that are not
 * there, experts out of range, ranks that own none) and notes (fused experts, which no rank
 * withholds). Borrowed from the result.
 * Thread rule: any thread. */
HEFT_API const heft_report *heft_filter_warnings(const heft_filter_result *result);

#ifdef __cplusplus
}
#endif
#endif
