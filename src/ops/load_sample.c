/* ops: whether a file is in the page cache, found by timing a few reads where the system does not tell. */
#include "ops/load_run.h"

#include "base/error.h"

enum { SAMPLE_READS = 4 };
#define SAMPLE_NBYTES (UINT64_C(4) << 20)
#define SAMPLE_LEAST  (UINT64_C(256) << 20) /* kept bytes of a file from which the question is worth its cost */
#define SAMPLE_HOT    5e9                   /* bytes a second that no disk of these days delivers to one reader */

/* What is read twice counts as over-read, and has its budget. */
static bool sample_wanted(const heft_load_plan *load, uint32_t file) {
    const heft__plan_source *source = &load->plan->sources[file];
    uint64_t over = load->plan->sum.over_read_nbytes + load->sampled.nbytes + SAMPLE_READS * SAMPLE_NBYTES;
    return over <= heft__plan_budget(load->plan) && source->path == HEFT_PATH_DIRECT &&
           source->reason == HEFT_REASON_COLD_LOCAL && !load->shards[file].timed && !source->facts.residency.known &&
           source->kept >= SAMPLE_LEAST;
}

/* Reads spread over the runs of a file. *seconds: what they took. */
static heft_status sample_file(heft_load_plan *load, uint32_t file, uint8_t *scratch, double *seconds,
                               heft_error *err) {
    const heft_plan *plan = load->plan;
    const heft__plan_source *source = &plan->sources[file];
    heft_status status = HEFT_OK;
    double (*clock)(void) = heft__facts_sys_get()->seconds;
    double started = clock();
    for (uint64_t i = 0; i < SAMPLE_READS && status == HEFT_OK; i++) {
        uint64_t at = source->kept / SAMPLE_READS * i, r = source->first_run;
        while (r + 1 < source->first_run + source->nruns && at >= plan->runs[r].kept) at -= plan->runs[r++].kept;
        uint64_t offset = plan->runs[r].offset + at, left = source->source->size - offset;
        status = heft__source_read_all(source->source, offset, left < SAMPLE_NBYTES ? left : SAMPLE_NBYTES, scratch,
                                       &load->sampled, err);
    }
    *seconds = clock() - started;
    return status;
}

heft_status heft__load_sample(heft_load_plan *load, heft_error *err) {
    uint32_t nfiles = load->archive->nfiles, hot = 0;
    uint8_t *scratch = NULL;
    heft_status status = HEFT_OK;
    for (uint32_t i = 0; i < nfiles && status == HEFT_OK && !load->options.no_timed_sample; i++) {
        double seconds;
        if (!sample_wanted(load, i)) continue;
        if (!scratch) {
            status = heft_load_plan_admit(load, err); /* no byte of a tensor is read before */
            if (status == HEFT_OK && !(scratch = heft__alloc(&load->alloc, SAMPLE_NBYTES)))
                status = heft__fail_memory(err, SAMPLE_NBYTES);
        }
        if (status == HEFT_OK) status = sample_file(load, i, scratch, &seconds, err);
        if (status != HEFT_OK) break;
        load->shards[i].timed = true;
        heft__residency *residency = &load->facts[i].residency;
        bool is_hot = (double)(SAMPLE_READS * SAMPLE_NBYTES) > seconds * SAMPLE_HOT;
        residency->known = true;
        residency->asked_nbytes = load->plan->sources[i].kept;
        residency->resident_nbytes = is_hot ? residency->asked_nbytes : 0;
        hot += is_hot;
    }
    heft__free(&load->alloc, scratch, SAMPLE_NBYTES);
    if (status != HEFT_OK || hot == 0) return status;
    heft_plan *fresh;
    status = heft__load_layout(load, 0, false, &fresh, err);
    if (status != HEFT_OK) return status;
    heft_plan_free(load->plan);
    load->plan = fresh;
    for (uint32_t i = 0; i < nfiles; i++) heft__plan_why(fresh, i, load->shards[i].why, sizeof load->shards[i].why);
    return HEFT_OK;
}
