/* source: the rules of a file name that comes from a file. */
#include "source/source.h"

#include "base/utf8.h"

const char *heft__path_component_fault(const char *name, size_t len) {
    if (len == 0) return "it is empty";
    if (len > 255) return "it is longer than 255 bytes";
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'))) return "it is a folder, not a file";
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c == '/') return i ? "it has a slash: only files beside the index are allowed" : "it is an absolute path";
        if (c == '\\') return "it has a backslash";
        if (c < 0x20 || c == 0x7F) return "it has a control byte";
    }
    unsigned char first = (unsigned char)name[0];
    if (len >= 2 && name[1] == ':' && ((first >= 'A' && first <= 'Z') || (first >= 'a' && first <= 'z')))
        return "it starts like a drive letter";
    if (heft__utf8_check(name, len) != len) return "it is not UTF-8";
    return NULL;
}
