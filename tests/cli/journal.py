"""Leaves the journal of an edit in place that did not begin to write: the header of FILE with OLD replaced by NEW.

usage: journal.py FILE OLD NEW
"""
import os
import struct
import sys
import zlib

path, old, new = sys.argv[1:]
with open(path, "rb") as f:
    prefix = f.read(8)
    header = prefix + f.read(struct.unpack("<Q", prefix)[0])
after = header.replace(old.encode(), new.encode())
assert header != after and len(header) == len(after)
stat = os.stat(path)
data = b"heftjrn1" + struct.pack("<QQQq", len(header), stat.st_size, stat.st_ino, stat.st_mtime_ns)
data += b".heft-x-12345678-1-12345678.tmp".ljust(256, b"\0") + os.path.basename(path).encode().ljust(256, b"\0") + header + after
with open(os.path.join(os.path.dirname(path), ".heft-%s.journal" % os.path.basename(path)), "wb") as f:
    f.write(data + struct.pack("<I", zlib.crc32(data)))
