/* ops: compares what a plan keeps with what a caller expects, and tells every difference. */
#include "ops/load.h"

#include "base/error.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

typedef struct audit_job {
    const heft_load_plan *plan;
    void (*fault)(void *ctx, const heft_error *difference);
    void *ctx;
    heft_error first;
    uint64_t count;
} audit_job;

static void audit_tell(audit_job *job, const heft_error *difference) {
    if (job->count++ == 0) job->first = *difference;
    if (job->fault) job->fault(job->ctx, difference);
}

static void audit_shape_text(char *out, size_t size, uint32_t rank, const uint64_t *shape) {
    size_t at = 1;
    snprintf(out, size, "[");
    for (uint32_t d = 0; d < rank && at + 32 < size; d++)
        at += (size_t)snprintf(out + at, size - at, d ? ", %llu" : "%llu", (unsigned long long)shape[d]);
    snprintf(out + at, size - at, "]");
}

/* One difference of tensor `id`. */
static void audit_differs(audit_job *job, uint64_t id, const char *is, const char *wants) {
    const heft_archive *archive = job->plan->archive;
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(archive, id, &file);
    heft_error e;
    char name[170];
    heft__escape(name, sizeof name, entry->name, entry->name_len);
    heft__fail(&e, HEFT_MISMATCH, HEFT_FAULT_CALL, "tensor \"%s\" %s%s", name, is, wants);
    heft__error_tensor(&e, entry->name, entry->name_len);
    heft__error_file(&e, archive->files[file]->source->label);
    audit_tell(job, &e);
}

/* An expected tensor that the archive has under `id`. */
static void audit_tensor(audit_job *job, const heft_expected *want, uint64_t id) {
    uint32_t file;
    const heft__entry *entry = heft__archive_entry(job->plan->archive, id, &file);
    heft_rule rule = heft__load_rule(job->plan, id);
    char found[300], text[340];
    if (heft_rule_outcome(rule) == HEFT_OUTCOME_WITHHELD) {
        audit_differs(job, id, "is withheld by the rule ", heft_rule_name(rule));
        return;
    }
    heft_dtype dtype = heft__load_dtype(&job->plan->parts, entry, id);
    if (want->dtype != HEFT_DTYPE_NONE && want->dtype != dtype) {
        snprintf(text, sizeof text, "has dtype %s; expected is ", heft_dtype_name(dtype));
        audit_differs(job, id, text, heft_dtype_name(want->dtype));
    }
    bool same = want->rank == entry->rank && (!want->rank || !want->shape ||
                                              memcmp(want->shape, entry->shape, want->rank * sizeof *want->shape) == 0);
    if (want->shape && !same) {
        audit_shape_text(found, sizeof found, entry->rank, entry->shape);
        snprintf(text, sizeof text, "has shape %s; expected is ", found);
        audit_shape_text(found, sizeof found, want->rank, want->shape);
        audit_differs(job, id, text, found);
    }
}

heft_status heft_load_plan_audit(const heft_load_plan *plan, const heft_expected *expected, uint64_t nexpected,
                                 bool partial, void (*fault)(void *ctx, const heft_error *difference), void *ctx,
                                 heft_error *err) {
    const heft_archive *archive = plan->archive;
    audit_job job = {.plan = plan, .fault = fault, .ctx = ctx};
    if (!expected && nexpected) return heft__fail_null(err, "expected");
    uint64_t nbytes = archive->ntensors / 8 + 1;
    uint8_t *seen = heft__alloc_zero(&plan->alloc, nbytes);
    if (!seen) return heft__fail_memory(err, nbytes);
    for (uint64_t i = 0; i < nexpected; i++) {
        const char *name = expected[i].name ? expected[i].name : "";
        uint64_t id = heft__archive_lookup(archive, name, strlen(name));
        if (id == HEFT_NONE) {
            heft_error e;
            heft__archive_fail_name(archive, name, strlen(name), &e);
            e.status = HEFT_MISMATCH;
            audit_tell(&job, &e);
            continue;
        }
        seen[id / 8] |= (uint8_t)(1u << (id % 8));
        audit_tensor(&job, &expected[i], id);
    }
    for (uint64_t i = 0; !partial && i < plan->nkept; i++) {
        uint64_t id = heft__load_kept(plan, i);
        if (!(seen[id / 8] >> (id % 8) & 1)) audit_differs(&job, id, "is kept", " and nobody expects it");
    }
    heft__free(&plan->alloc, seen, nbytes);
    if (job.count == 0) return HEFT_OK;
    if (err) {
        *err = job.first;
        err->more = job.count - 1 < UINT32_MAX ? (uint32_t)(job.count - 1) : UINT32_MAX;
    }
    return HEFT_MISMATCH;
}
