/* Wrong files: each kind has its own message and fault. */
#include "helper_scan.h"

#include "helper_files.h"

typedef struct wrong_file {
    const char *bytes;
    size_t len; /* 0: strlen */
    heft_fault fault;
    const char *says; /* part of the message */
} wrong_file;

#define LFS                                                                                                            \
    "version https://git-lfs.github.com/spec/v1\noid "                                                                 \
    "sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db\nsize 90868376\n"
#define ZIP(name, len) "PK\3\4\x14\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0" len "\0\0\0" name "...."
#define TAR_NAME       "model/config.json"

static const wrong_file wrong_files[] = {
    {LFS, 0, HEFT_FAULT_LFS_POINTER,
     "90868376 bytes and sha256 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
    {"<!DOCTYPE html><html><head><title>404 Not Found</title>", 0, HEFT_FAULT_HTML_PAGE, "title \"404 Not Found\""},
    {"\n \t<HTML><Title lang=en>\n Sign  in\r\n</title>", 0, HEFT_FAULT_HTML_PAGE, "title \"Sign in\""},
    {"<html><body>no title here</body>", 0, HEFT_FAULT_HTML_PAGE, "an HTML page"},
    {"\xEF\xBB\xBF<html><h1>Oops</h1>", 0, HEFT_FAULT_HTML_PAGE, "heading \"Oops\""},
    {"<?xml version=\"1.0\"?><Error><Code>x</Code><Message>Access Denied</Message>", 0, HEFT_FAULT_HTML_PAGE,
     "an XML answer saved in place of the file, likely of an error or a login, message \"Access Denied\""},
    {"{\"error\":\"Repository not found\"}", 0, HEFT_FAULT_JSON_ERROR, ": \"Repository not found\""},
    {"{\"code\":401,\"a\":{\"message\":\"bad\\u001b[31m token\"}}", 0, HEFT_FAULT_JSON_ERROR,
     ": \"bad\\x1B[31m token\""},
    {"{\"architectures\":[\"BertModel\"]}", 0, HEFT_FAULT_JSON_ERROR, "a short JSON text"},
    {ZIP("arr_0.npy", "\x09"), 43, HEFT_FAULT_TRUNCATED, "the directory of the zip archive"},
    {ZIP("archive/data.pkl", "\x10"), 50, HEFT_FAULT_ZIP, "PyTorch"},
    {ZIP("readme.txt", "\x0A"), 44, HEFT_FAULT_ZIP, "(first member \"readme.txt\")"},
    {"PK\3\4\x14\0\0\0\0\0\0\0\0\0", 14, HEFT_FAULT_ZIP, "ends inside its first member"},
    {"\x80\x02}q\0(X\5\0\0\0", 11, HEFT_FAULT_PICKLE, "protocol 2"},
    {"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94", 13, HEFT_FAULT_PICKLE, "protocol 4"},
    {"\x80\x02\x8A\x0Al\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.\x80\x02M\xE9\x03.", 0, HEFT_FAULT_PICKLE, "PyTorch"},
    {"\x1F\x8B\x08\0\0\0\0\0\0\3", 10, HEFT_FAULT_COMPRESSED, "gzip"},
    {"BZh91AY&SY", 0, HEFT_FAULT_COMPRESSED, "bzip2"},
    {"\xFD"
     "7zXZ\0\0\4",
     8, HEFT_FAULT_COMPRESSED, "xz"},
    {"\x28\xB5\x2F\xFD\4\0\0\0", 8, HEFT_FAULT_COMPRESSED, "zstd"},
    {"GGUF\3\0\0\0\0", 9, HEFT_FAULT_OTHER_FORMAT, "GGUF"},
    {"\x93NUMPY\1\0v\0", 10, HEFT_FAULT_TRUNCATED, "truncated inside the npy header"},
    {"\x89HDF\r\n\x1A\n\0", 9, HEFT_FAULT_OTHER_FORMAT, "HDF5"},
    {"\x89PNG\r\n\x1A\n", 0, HEFT_FAULT_NOT_TENSORS, "PNG"},
    {"\xFF\xD8\xFF\xE0\0\x10JFIF", 10, HEFT_FAULT_NOT_TENSORS, "JPEG"},
    {"%PDF-1.7\n", 0, HEFT_FAULT_NOT_TENSORS, "PDF"},
    {"\x7F"
     "ELF\2\1\1\0\0",
     9, HEFT_FAULT_NOT_TENSORS, "ELF"},
    {"RIFF\x24\0\0\0WAVE", 12, HEFT_FAULT_NOT_TENSORS, "RIFF"},
    {"SAFT\1\0\0\0\0", 9, HEFT_FAULT_NOT_TENSORS, "no real format"},
    {"\0\0\0\0\0\0\0\0\0\0\0\0", 12, HEFT_FAULT_ZEROS, "all 12 bytes are zero"},
    {"", 0, HEFT_FAULT_EMPTY, "0 of the 8 bytes"},
    {"\x02\0\0", 3, HEFT_FAULT_TOO_SMALL, "3 of the 8 bytes"},
    {"the quick brown fox\njumps", 0, HEFT_FAULT_TEXT, "which begins \"the quick brown fox\""},
    {"\xFF\xFEh\0i\0 \0t\0h\0e\0r\0e\0", 18, HEFT_FAULT_TEXT, "UTF-16 text file, which begins \"hi there\""},
    {"\xFE\xFF\0h\0i\0 \0t\0h\0e\0r\0e", 18, HEFT_FAULT_TEXT, "UTF-16 text file, which begins \"hi there\""},
    {"h\0i\0 \0t\0h\0e\0r\0e\0", 16, HEFT_FAULT_TEXT, "UTF-16 text file, which begins \"hi there\""},
};

static void assert_diagnosed(const void *bytes, size_t n, heft_fault fault, const char *says) {
    for (int collect = 0; collect < 2; collect++) {
        heft__scan_options options = {.collect = collect};
        heft__listing listing;
        heft_error err = {0};
        heft_status status = scan_bytes(bytes, n, &options, NULL, &listing, &err);
        assert_int_equal(status, collect ? HEFT_OK : HEFT_CORRUPT);
        const heft_error *said = collect ? listing.fatal : &err;
        assert_non_null(said);
        if (said->fault != fault || !strstr(said->message, says)) print_message("%s: %s\n", says, said->message);
        assert_int_equal(said->fault, fault);
        assert_int_equal(said->status, HEFT_CORRUPT);
        assert_non_null(strstr(said->message, says));
        assert_int_equal(strncmp(said->message, "file: ", 6), 0);
        assert_string_equal(said->file, "file");
        heft__listing_free(&listing);
    }
}

static void each_kind_has_its_message(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong_files / sizeof *wrong_files; i++) {
        const wrong_file *w = &wrong_files[i];
        assert_diagnosed(w->bytes, w->len ? w->len : strlen(w->bytes), w->fault, w->says);
    }
}

static void large_wrong_files(void **state) {
    (void)state;
    static char bytes[170000];
    memset(bytes, 0, sizeof bytes);
    assert_diagnosed(bytes, sizeof bytes, HEFT_FAULT_ZEROS, "the first 4096 bytes are zero");
    strcpy(bytes, TAR_NAME);
    memcpy(bytes + 257, "ustar", 5);
    assert_diagnosed(bytes, sizeof bytes, HEFT_FAULT_OTHER_FORMAT, "tar");
    memset(bytes, ' ', sizeof bytes);
    memcpy(bytes, "<html><head>", 12);
    memcpy(bytes + 3000, "<title>Log in</title>", 21);
    assert_diagnosed(bytes, sizeof bytes, HEFT_FAULT_HTML_PAGE, "title \"Log in\"");
    memcpy(bytes, "{\"model_type\":", 14);
    assert_diagnosed(bytes, sizeof bytes, HEFT_FAULT_TEXT, "a JSON text, not a tensor file");
}

/* Lengths whose first bytes happen to look like something else stay headers. */
static void headers_are_not_mistaken(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0x3C, 0x7B, 0x280, 0x8B1F, 0x7D0280, 0x7B3C};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int bad = 0; bad < 2; bad++) {
            size_t n;
            char *header = malloc(lengths[i] + 1);
            memset(header, ' ', lengths[i]);
            memcpy(header, bad ? "{\"a\":1x" : "[]x", bad ? 7 : 3);
            uint8_t *file = scan_file(header, lengths[i], 0, &n);
            heft__listing listing;
            heft_error err;
            assert_int_equal(scan_bytes(file, n, NULL, NULL, &listing, &err), HEFT_CORRUPT);
            assert_true(err.fault == HEFT_FAULT_BAD_ENTRY || err.fault == HEFT_FAULT_JSON_SYNTAX);
            heft__listing_free(&listing);
            free(file);
            free(header);
        }
    }
}

/* One good file of three tensors, cut and lengthened at every place that matters. */
static void truncated_and_trailing(void **state) {
    (void)state;
    static const test_tensor tensors[] = {
        {"a", "F32", "2", NULL, 8}, {"b", "U8", "3", NULL, 3}, {"c", "U8", "5", NULL, 5}};
    size_t n;
    uint8_t *file = test_safetensors(tensors, 3, NULL, &n);
    size_t data = n - 16;
    static const struct {
        size_t cut; /* bytes that are left out */
        const char *says;
    } rows[] = {
        {1, "1 byte missing; 2 of 3 tensors are whole; first incomplete: \"c\" (data 11 to 16)"},
        {5, "5 bytes missing; 2 of 3 tensors are whole; first incomplete: \"c\""},
        {7, "7 bytes missing; 1 of 3 tensors are whole; first incomplete: \"b\""},
        {8, "8 bytes missing; 1 of 3 tensors are whole; first incomplete: \"b\""},
        {16, "16 bytes missing; 0 of 3 tensors are whole; first incomplete: \"a\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        heft__listing listing;
        heft_error err;
        assert_int_equal(scan_bytes(file, n - rows[i].cut, NULL, NULL, &listing, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, HEFT_FAULT_TRUNCATED);
        assert_int_equal(err.expected, n);
        assert_int_equal(err.found, n - rows[i].cut);
        assert_non_null(strstr(err.message, rows[i].says));
        heft__listing_free(&listing);
    }
    assert_diagnosed(file, data - 1, HEFT_FAULT_TRUNCATED, "truncated inside the header");
    assert_diagnosed(file, 20, HEFT_FAULT_TRUNCATED, "truncated inside the header");
    assert_diagnosed(file, 5, HEFT_FAULT_TOO_SMALL, "5 of the 8 bytes");
    static const size_t extra[] = {1, 4096, 16 << 20};
    for (size_t i = 0; i < 6; i++) {
        size_t more = extra[i / 2];
        uint8_t *longer = calloc(1, n + more);
        memcpy(longer, file, n);
        longer[n + more - 1] = i % 2;
        heft__listing listing;
        heft_error err;
        assert_int_equal(scan_bytes(longer, n + more, NULL, NULL, &listing, &err), HEFT_CORRUPT);
        assert_int_equal(err.fault, HEFT_FAULT_TRAILING_BYTES);
        assert_int_equal(err.offset, n);
        assert_int_equal(err.found - err.expected, more);
        assert_non_null(strstr(err.message, i % 2 ? "not all zero" : ", all zero"));
        heft__listing_free(&listing);
        free(longer);
    }
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_has_its_message),
        cmocka_unit_test(large_wrong_files),
        cmocka_unit_test(headers_are_not_mistaken),
        cmocka_unit_test(truncated_and_trailing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
