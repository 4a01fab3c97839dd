/* fuzz: an npy file: the grammar of its header. The first byte says how it is opened. */
#include "arrays.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    heft_open_options options = {.struct_size = sizeof options, .workers = 1};
    if (size < 1) return 0;
    options.lenient = data[0] & 1 ? HEFT_LENIENT_ALL : 0;
    options.list_unknown_dtypes = data[0] & 2;
    options.void1 = data[0] & 4 ? HEFT_F8_E4M3 : HEFT_DTYPE_NONE;
    options.void2 = data[0] & 4 ? HEFT_BF16 : HEFT_DTYPE_NONE;
    options.max_decoded_nbytes = 1 << 20;
    arrays_demand(data + 1, size - 1, &options);
    return 0;
}
