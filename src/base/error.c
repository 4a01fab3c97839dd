/* base: fills heft_error. */
#include "base/error.h"

#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char error_ellipsis[] = "\xE2\x80\xA6";

size_t heft__copy_text(char *dst, size_t size, const char *text, size_t len) {
    size_t out = 0, in = 0;
    while (in < len) {
        size_t n = 1;
        uint32_t code = heft__utf8_decode(text + in, len - in, &n);
        const char *piece = text + in;
        size_t nout = n;
        if (code == 0) {
            piece = "\xE2\x90\x80"; /* U+2400, the picture of a NUL */
            nout = 3;
        } else if (code == 0xFFFD && n == 1) {
            piece = "?";
        }
        in += n;
        /* The ellipsis needs 3 bytes and the NUL 1: what does not fit before them ends the text, unless it is all. */
        if (out + nout + (in < len ? 4 : 1) > size) {
            if (size >= 4) {
                while (out + 4 > size) out = heft__utf8_cut(dst, out - 1);
                memcpy(dst + out, error_ellipsis, 3);
                out += 3;
            }
            break;
        }
        memcpy(dst + out, piece, nout);
        out += nout;
    }
    if (size) dst[out] = 0;
    return out;
}

heft_status heft__fail(heft_error *err, heft_status status, heft_fault fault, const char *format, ...) {
    if (!err) return status;
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memset(err, 0, sizeof *err);
    err->status = status;
    err->fault = fault;
    err->offset = err->expected = err->found = HEFT_NONE;
    if (n < 0) n = 0;
    if ((size_t)n >= sizeof text) n = (int)sizeof text - 1;
    heft__copy_text(err->message, sizeof err->message, text, (size_t)n);
    return status;
}

heft_status heft__fail_memory(heft_error *err, uint64_t nbytes) {
    if (nbytes == HEFT_NONE) return heft__fail(err, HEFT_OUT_OF_MEMORY, HEFT_FAULT_MEMORY, "out of memory");
    heft__fail(err, HEFT_OUT_OF_MEMORY, HEFT_FAULT_MEMORY, "out of memory: %llu bytes wanted", (unsigned long long)nbytes);
    heft__error_at(err, HEFT_NONE, nbytes, HEFT_NONE);
    return HEFT_OUT_OF_MEMORY;
}

const char *heft__errno_name(int code) {
    static const struct {
        int code;
        const char *name;
    } names[] = {{EPERM, "EPERM"},   {ENOENT, "ENOENT"},   {EINTR, "EINTR"},     {EIO, "EIO"},         {EBADF, "EBADF"},
                 {EAGAIN, "EAGAIN"}, {ENOMEM, "ENOMEM"},   {EACCES, "EACCES"},   {EFAULT, "EFAULT"},   {EEXIST, "EEXIST"},
                 {EXDEV, "EXDEV"},   {ENODEV, "ENODEV"},   {ENOTDIR, "ENOTDIR"}, {EISDIR, "EISDIR"},   {EINVAL, "EINVAL"},
                 {ENFILE, "ENFILE"}, {EMFILE, "EMFILE"},   {EFBIG, "EFBIG"},     {ENOSPC, "ENOSPC"},   {ESPIPE, "ESPIPE"},
                 {EROFS, "EROFS"},   {EPIPE, "EPIPE"},     {ENOSYS, "ENOSYS"},   {ELOOP, "ELOOP"},     {EDQUOT, "EDQUOT"},
                 {ESTALE, "ESTALE"}, {ENXIO, "ENXIO"},     {ETXTBSY, "ETXTBSY"}, {EOVERFLOW, "EOVERFLOW"},
                 {EOPNOTSUPP, "EOPNOTSUPP"},               {EBADMSG, "EBADMSG"},   {ENAMETOOLONG, "ENAMETOOLONG"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return names[i].name;
    return "errno";
}

heft_status heft__fail_errno(heft_error *err, int code, const char *file, const char *what) {
    heft_status status = HEFT_IO;
    heft_fault fault = HEFT_FAULT_READ_ERROR;
    const char *text = "the operating system failed the call";
    switch (code) {
    case ENOENT: status = HEFT_NOT_FOUND, fault = HEFT_FAULT_NO_FILE, text = "no such file or directory"; break;
    case ENOTDIR: status = HEFT_NOT_FOUND, fault = HEFT_FAULT_NO_FILE, text = "a part of the path is no directory"; break;
    case ELOOP: status = HEFT_NOT_FOUND, fault = HEFT_FAULT_NO_FILE, text = "too many symbolic links"; break;
    case ENAMETOOLONG: status = HEFT_NOT_FOUND, fault = HEFT_FAULT_NO_FILE, text = "the name is too long"; break;
    case EACCES: case EPERM: case EROFS: case EXDEV:
        status = HEFT_PERMISSION, fault = HEFT_FAULT_ACCESS;
        text = code == EXDEV   ? "a link leads out of the folder"
               : code == EROFS ? "the file system is read-only"
                               : "permission denied";
        break;
    case EEXIST: status = HEFT_EXISTS, fault = HEFT_FAULT_CALL, text = "it exists already"; break;
    case ENOMEM: status = HEFT_OUT_OF_MEMORY, fault = HEFT_FAULT_MEMORY, text = "the system is out of memory"; break;
    case EMFILE: case ENFILE:
        status = HEFT_LIMIT, fault = HEFT_FAULT_CALLER_LIMIT;
        text = code == EMFILE ? "too many open files in this process (ulimit -n)" : "too many open files on this machine";
        break;
    case EBADMSG:
        status = HEFT_CORRUPT, fault = HEFT_FAULT_CHECKSUM;
        text = "the data is damaged: it does not have its checksum";
        break;
    case EIO: text = "input/output error of the device"; break;
    case ENOSPC: text = "no space left on the device"; break;
    case EDQUOT: text = "the disk quota is used up"; break;
    case EFBIG: text = "the file is larger than a limit (ulimit -f) or the file system allows"; break;
    case ESTALE: text = "stale network file handle"; break;
    default: break;
    }
    char name[600];
    heft__escape(name, sizeof name, file ? file : "", file ? strlen(file) : 0);
    heft__fail(err, status, fault, "%s: %s failed: %s (%s, errno %d)", name, what, text, heft__errno_name(code), code);
    if (err) err->sys_errno = code;
    heft__error_file(err, file);
    return status;
}

void heft__error_file(heft_error *err, const char *file) {
    if (err && file) heft__copy_text(err->file, sizeof err->file, file, strlen(file));
}

void heft__error_tensor(heft_error *err, const char *name, size_t len) {
    if (err && name) heft__copy_text(err->tensor, sizeof err->tensor, name, len);
}

void heft__error_at(heft_error *err, uint64_t offset, uint64_t expected, uint64_t found) {
    if (!err) return;
    err->offset = offset;
    err->expected = expected;
    err->found = found;
}
