/* fuzz: the index JSON of a sharded model. */
#include "format/format.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    heft_source *source;
    heft__index index;
    heft_error err;
    if (heft_source_open_memory(data, size, "input", NULL, NULL, &source, NULL)) abort();
    heft_status status = heft__index_read(source, &heft__default_allocator, 1 << 20, &index, &err);
    if (status) {
        REQUIRE(err.status == status && err.fault != HEFT_FAULT_NONE && err.message[0]);
        REQUIRE(!index.text && !index.items && !index.shards);
        if (err.offset != HEFT_NONE) REQUIRE(err.offset <= size);
    }
    for (uint64_t i = 0; i < index.nitems; i++) {
        const heft__index_item *item = &index.items[i];
        REQUIRE(item->shard < index.nshards && item->name[item->name_len] == 0);
        for (uint64_t k = 0; k < i && i < 64; k++)
            REQUIRE(index.items[k].name_len != item->name_len ||
                    memcmp(index.items[k].name, item->name, item->name_len));
    }
    for (uint32_t i = 0; i < index.nshards; i++) {
        REQUIRE(!heft__path_component_fault(index.shards[i], strlen(index.shards[i])));
        for (uint32_t k = 0; k < i && i < 64; k++) REQUIRE(strcmp(index.shards[i], index.shards[k]) != 0);
    }
    heft__index_free(&index);
    heft_source_unref(source);
    return 0;
}
