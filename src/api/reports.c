/* api: checking paths, and reading reports. */
#include "api/api.h"

#include "base/error.h"

#include <string.h>

/* Checks what has been resolved, if it has. */
static heft_status report_make(heft_status status, heft__resolution *resolution, const heft__open_job *job,
                               heft_report **out, heft_error *err) {
    if (status) return status;
    status = heft__check(resolution, job, out, err);
    heft__resolution_free(resolution);
    return status;
}

/* ---- checking ---- */

heft_status heft_check(const char *path, const heft_open_options *options, heft_report **out, heft_error *err) {
    heft__open_job job;
    heft__resolution resolution;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!path) return heft__fail_null(err, "path");
    heft_status status = heft__open_job_make(options, &job, err);
    if (status) return status;
    job.collect = true;
    return report_make(heft__resolve(path, &job, &resolution, err), &resolution, &job, out, err);
}

heft_status heft_check_source(heft_source *source, const heft_open_options *options, heft_report **out,
                              heft_error *err) {
    heft__open_job job;
    heft__resolution resolution;
    if (!out) return heft__fail_null(err, "out");
    *out = NULL;
    if (!source) return heft__fail_null(err, "source");
    heft_status status = heft__open_job_make(options, &job, err);
    if (status) return status;
    job.collect = true;
    return report_make(heft__resolve_source(source, &job, &resolution, err), &resolution, &job, out, err);
}

/* ---- reports ---- */

uint64_t heft_report_count(const heft_report *report) {
    return report->faults.count;
}

uint64_t heft_report_count_of(const heft_report *report, heft_severity severity) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < report->faults.count; i++) n += report->faults.items[i].severity == severity;
    return n;
}

heft_status heft_report_get(const heft_report *report, uint64_t index, heft_severity *severity, heft_error *fault,
                            heft_error *err) {
    *severity = HEFT_SEVERITY_NOTE;
    memset(fault, 0, sizeof *fault);
    if (index >= report->faults.count)
        return heft__fail(err, HEFT_INVALID_ARGUMENT, HEFT_FAULT_CALL, "item %llu of a report of %llu",
                          (unsigned long long)index, (unsigned long long)report->faults.count);
    *severity = report->faults.items[index].severity;
    heft__report_describe(report, &report->faults.items[index], fault);
    return HEFT_OK;
}

void heft_report_summarize(const heft_report *report, heft_report_summary *out) {
    *out = report->summary;
}

void heft_report_free(heft_report *report) {
    if (report && report->owned) heft__report_free(report);
}
