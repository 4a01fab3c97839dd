// A C++17 program on the installed headers and nothing else: sums a tensor of a model.
#include <heft/heft.h>

#include <cstdio>
#include <memory>
#include <type_traits>

static_assert(std::is_trivially_copyable_v<heft_view>, "views are plain values");

int main(int argc, char **argv) {
    heft_error err{};
    heft_archive *opened = nullptr;
    if (argc != 3 || heft_archive_open(argv[1], nullptr, &opened, &err) != HEFT_OK) {
        std::puts(err.message);
        return 1;
    }
    std::unique_ptr<heft_archive, decltype(&heft_archive_unref)> model(opened, heft_archive_unref);
    heft_view view{};
    heft_buffer bytes{};
    if (heft_view_named(model.get(), argv[2], SIZE_MAX, &view, &err) != HEFT_OK ||
        heft_read_buffer(&view, nullptr, &bytes, nullptr, &err) != HEFT_OK) {
        std::puts(err.message);
        return 1;
    }
    int64_t sum = 0;
    for (uint64_t i = 0; i < heft_view_nelems(&view); i++) sum += heft_dtype_get(view.dtype, bytes.data, i).i;
    heft_buffer_release(&bytes);
    std::printf("%lld\n", static_cast<long long>(sum));
}
