/* fuzz: the journal of an edit in place and the file that it lies beside: the first two bytes are the length of the journal. */
#include "digest/digest.h"
#include "format/format.h"
#include "ops/journal.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)

/* What is said to belong to the file is: no byte of a third party is replaced. */
static void judge(const heft__journal *journal, const uint8_t *file, uint64_t size, bool writing, bool same) {
    heft__journal_fit fit = heft__journal_judge(journal, size, journal->inode + !same, journal->mtime_ns, file, writing);
    if (size != journal->file_nbytes) REQUIRE(fit == HEFT__JOURNAL_FOREIGN);
    if (fit == HEFT__JOURNAL_FOREIGN) {
        REQUIRE(size != journal->file_nbytes || !same || memcmp(file, journal->before, journal->header_nbytes) != 0);
        return;
    }
    for (uint64_t i = 0; i < journal->header_nbytes; i++) REQUIRE(file[i] == journal->before[i] || file[i] == journal->after[i]);
    REQUIRE(fit == HEFT__JOURNAL_FITS); /* the time is that of the journal */
}

static void scan(const heft__journal *journal, const uint8_t *file, uint64_t size) {
    heft__scan_options options = {.max_header_nbytes = 1 << 20, .header = journal->after, .header_nbytes = journal->header_nbytes};
    heft__listing listing;
    heft_source *source;
    heft_error err;
    REQUIRE(heft_source_open_memory(file, size, "input", NULL, NULL, &source, NULL) == HEFT_OK);
    heft__listing_init(&listing, &heft__default_allocator);
    heft_status status = heft__scan(source, &options, &listing, &err);
    if (status) REQUIRE(err.status == status && err.message[0]);
    else REQUIRE(listing.data_start == journal->header_nbytes);
    heft__listing_free(&listing);
    heft_source_unref(source);
}

static void look(const uint8_t *data, uint64_t nbytes, const uint8_t *file, uint64_t size) {
    heft__journal journal;
    const char *why = NULL;
    if (!heft__journal_parse(data, nbytes, &journal, &why)) {
        REQUIRE(why && *why);
        return;
    }
    uint64_t n = journal.header_nbytes;
    REQUIRE(n >= 10 && n <= journal.file_nbytes && heft__journal_nbytes(n) == nbytes);
    REQUIRE(journal.before >= data && journal.after == journal.before + n && journal.after + n < data + nbytes);
    uint8_t *again = malloc(nbytes);
    REQUIRE(again);
    memset(again, 0, nbytes);
    heft__journal_write(&journal, again);
    REQUIRE(memcmp(data, again, nbytes) == 0);
    free(again);
    if (size < n) return;
    for (int i = 0; i < 4; i++) judge(&journal, file, size, i & 1, i & 2);
    scan(&journal, file, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t n = (size_t)data[0] | (size_t)data[1] << 8;
    if (n > size - 2) n = size - 2;
    look(data + 2, n, data + 2 + n, size - 2 - n);
    if (n < 4) return 0;
    uint8_t *copy = malloc(n); /* with the checksum that it should have */
    REQUIRE(copy);
    memcpy(copy, data + 2, n);
    uint32_t crc = heft__crc32(0, copy, n - 4);
    for (int i = 0; i < 4; i++) copy[n - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
    look(copy, n, data + 2 + n, size - 2 - n);
    free(copy);
    return 0;
}
