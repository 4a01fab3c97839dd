/* fuzz: a checkpoint written again as the first byte says, and read back; or, where its highest bit is set, the marker of an
 * interrupted save. */
#include "heft/heft.h"

#include "base/alloc.h"
#include "ops/save_set.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEMAND(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) abort();                                                                                          \
    } while (0)

static void marker(const uint8_t *data, size_t size) {
    heft__set_change change;
    char writer[256];
    const char *why;
    heft__set_change_init(&change, &heft__default_allocator);
    if (heft__set_marker_parse((const char *)data, size, &change, writer, &why)) {
        DEMAND(change.nrenames > 0 && strlen(writer) < sizeof writer);
        for (uint64_t i = 0; i < change.nrenames; i++) {
            DEMAND(heft__target_temp_is(change.renames[i].temp) && !strchr(change.renames[i].temp, '/'));
            DEMAND(!heft__path_component_fault(change.renames[i].name, strlen(change.renames[i].name)));
        }
        for (uint64_t i = 0; i < change.ndeletes; i++)
            DEMAND(!heft__path_component_fault(change.deletes[i], strlen(change.deletes[i])));
    } else DEMAND(why);
    heft__set_change_free(&change);
}

static heft_archive *open_bytes(const void *data, uint64_t size) {
    heft_source *source;
    heft_archive *archive;
    if (heft_source_open_memory(data, size, NULL, NULL, NULL, &source, NULL)) return NULL;
    heft_status status = heft_archive_open_source(source, NULL, &archive, NULL);
    heft_source_unref(source);
    return status == HEFT_OK ? archive : NULL;
}

static void *read_view(const heft_view *view, uint64_t *nbytes) {
    *nbytes = heft_view_nbytes(view);
    void *bytes = malloc(*nbytes + 1);
    DEMAND(bytes && heft_read(view, bytes, *nbytes, NULL, NULL, NULL) == HEFT_OK);
    return bytes;
}

/* Tensor i, or a view of it: turned, every other one reversed. */
static bool view_of(const heft_archive *archive, uint64_t i, uint8_t how, heft_view *view) {
    if (heft_view_of(archive, i, view, NULL) != HEFT_OK) return false;
    if (heft_dtype_bits(view->dtype) < 8 || !(how & 4)) return true;
    if (heft_view_permute(view, NULL, view, NULL) != HEFT_OK) return false;
    return !(i & 1) || view->rank == 0 || heft_view_index_text(view, "::-1", SIZE_MAX, view, NULL) == HEFT_OK;
}

static void compare(const heft_archive *archive, const heft_save_item *items, heft_view *views, uint64_t n,
                    const heft_buffer *saved) {
    heft_archive *again = open_bytes(saved->data, saved->nbytes);
    DEMAND(again && heft_archive_count(again) == n);
    for (uint64_t i = 0; i < n; i++) {
        heft_view view, whole;
        uint64_t had, has;
        DEMAND(heft_view_named(again, items[i].name, items[i].name_len ? items[i].name_len : 0, &view, NULL) == HEFT_OK);
        const heft_view *before = items[i].view ? &views[i] : &whole;
        if (!items[i].view) DEMAND(heft_view_of(archive, i, &whole, NULL) == HEFT_OK);
        DEMAND(view.rank == before->rank && memcmp(view.shape, before->shape, view.rank * sizeof *view.shape) == 0);
        void *old = read_view(before, &had), *new = read_view(&view, &has);
        DEMAND(had == has && memcmp(old, new, had) == 0);
        free(old);
        free(new);
    }
    heft_archive_unref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t how = *data++;
    size--;
    if (how & 128) {
        marker(data, size);
        return 0;
    }
    heft_archive *archive = open_bytes(data, size);
    if (!archive) return 0;
    uint64_t n = heft_archive_count(archive);
    heft_save_item *items = calloc(n + 1, sizeof *items);
    heft_view *views = malloc((n + 1) * sizeof *views);
    bool ok = n < 1000;
    for (uint64_t i = 0; ok && i < n; i++) {
        heft_tensor tensor;
        DEMAND(heft_archive_get(archive, i, &tensor, NULL) == HEFT_OK);
        items[i] = (heft_save_item){.name = tensor.name, .name_len = tensor.name_len ? tensor.name_len : SIZE_MAX};
        if (tensor.name_len == 0) items[i].name = "";
        if ((how & 3) && (ok = view_of(archive, i, how, &views[i]))) items[i].view = &views[i];
        else {
            items[i].archive = archive;
            items[i].id = i;
            ok = ok && tensor.rank <= HEFT_MAX_RANK;
            for (uint32_t d = 0; ok && d < tensor.rank; d++) ok = tensor.shape[d] <= INT64_MAX;
        }
    }
    heft_save_options options = {.struct_size = sizeof options, .workers = 1 + (how >> 6 & 1), .keep_order = how & 8,
                                 .no_fill = how & 16, .align = how & 32 ? 64 : 0};
    heft_buffer saved;
    heft_error err;
    heft_status status = ok ? heft_save_buffer(items, n, &options, &saved, NULL, &err) : HEFT_LIMIT;
    if (status == HEFT_OK) {
        compare(archive, items, views, n, &saved);
        heft_buffer_release(&saved);
    } else /* other formats than safetensors take shapes whose product overflows before a dim of 0 */
        DEMAND(!ok || err.fault == HEFT_FAULT_RESERVED_NAME || err.fault == HEFT_FAULT_SHAPE_OVERFLOW || status == HEFT_LIMIT);
    free(items);
    free(views);
    heft_archive_unref(archive);
    return 0;
}
