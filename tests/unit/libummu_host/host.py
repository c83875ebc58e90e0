# SPDX-License-Identifier: GPL-2.0-or-later
"""libummu built for the host with a stand-in for the device node, as a Python object."""

from __future__ import annotations

import ctypes as c
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ummulab import layouts
from ummulab.build.paths import REPO
from ummulab.decode import mapt
from ummulab.memory import MemoryReadError

HERE = Path(__file__).parent
LIBRARY = REPO / "guest/libummu"
CALLS_MAX = 65536
SANITIZE = os.environ.get("UMMULAB_LIBUMMU_SANITIZE", "")

OPEN, CLOSE, IOCTL, MAP, UNMAP, ALLOC, RANDOM, QUEUE = range(8)
EXPAN, DOUBLE, KCMD, IOPF, FREE_BIT, PPLBI = (1 << bit for bit in range(6))
IOC_ALLOC, IOC_FREE, IOC_VA, IOC_ALL = 0x40806B04, 0x40806B05, 0x40806B06, 0x40806B07
PSYNC, CMD_ALL, CMD_VA, CMD_NODE = 0x01, 0x10, 0x11, 0x12
EINVAL, ENOMEM, ERANGE = -22, -12, -34
TABLE, ENTRY = 0, 1
W, R, RW, ATOMIC_W, ATOMIC_R, ATOMIC_RW = 1, 2, 3, 5, 6, 7


class Call(c.Structure):
    _fields_ = [(n, c.c_uint32) for n in ("kind", "what", "tid")] + [
        ("result", c.c_int32),
        ("a", c.c_uint64),
        ("b", c.c_uint64),
    ]


class Fake(c.Structure):
    _fields_ = [
        ("hw_cap", c.c_uint64),
        ("block_bytes", c.c_uint64),
        *((n, c.c_uint32) for n in ("ummu_cnt", "next_tid", "same_tid", "page_shift")),
        *(
            (n, c.c_uint8)
            for n in ("pcmdq_order", "pcplq_order", "node_missing", "queues_dead", "queues_fail")
        ),
        *((n, c.c_int32) for n in ("fail_kind", "fail_after", "fail_errno")),
        ("allocations", c.c_int64),
        ("open_fds", c.c_int32),
        ("calls", c.c_uint32),
        ("call", Call * CALLS_MAX),
    ]


class TidAttr(c.Structure):
    _fields_ = [("mode", c.c_int), ("kabi_reserve", c.c_uint8 * 60)]


class Token(c.Structure):
    _fields_ = [("input", c.c_uint), ("value", c.c_uint), ("kabi_reserve", c.c_uint8 * 56)]


class SegAttr(c.Structure):
    _fields_ = [("token", c.POINTER(Token)), ("e_bit", c.c_int), ("kabi_reserve", c.c_uint8 * 52)]


def build(folder: Path) -> Path:
    """Compile the library with the stand-in; UMMULAB_LIBUMMU_SANITIZE=address|thread adds a sanitizer."""
    sources = [p for p in sorted((LIBRARY / "src").glob("*.c")) if p.name != "sys.c"]
    path = folder / "libummu-host.so"
    argv = [
        "gcc",
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-shared",
    ]
    if SANITIZE:
        argv += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer"]
        # GCC does not model the stand-alone barriers before doorbells; the locks are what this run looks at.
        undefined = ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
        argv += undefined if SANITIZE == "address" else ["-Wno-tsan"]
    argv += [f"-I{LIBRARY / 'include'}", f"-I{LIBRARY / 'src'}", *map(str, sources), str(HERE / "fake_sys.c")]
    argv += ["-Wl,--wrap=free", "-o", str(path), "-lpthread"]
    subprocess.run(argv, check=True, timeout=300)
    return path


class Host:
    """One loaded instance of the library and its stand-in."""

    def __init__(self, library: Path) -> None:
        self._lib = lib = c.CDLL(str(library), use_errno=True)
        self.fake = Fake.in_dll(lib, "fake")
        u32, size, void = c.c_uint32, c.c_size_t, c.c_void_p
        lib.ummu_allocate_tid.argtypes = [c.POINTER(TidAttr), c.POINTER(u32)]
        lib.ummu_free_tid.argtypes = [u32]
        lib.ummu_grant.argtypes = [u32, void, size, c.c_int, c.POINTER(SegAttr)]
        lib.ummu_ungrant.argtypes = [u32, void, size]
        lib.ummu_ungrant_by_token.argtypes = [u32, void, size, u32]
        lib.fake_block.restype = lib.fake_queue.restype = void
        self.raw = lib

    def allocate(self, mode: int = TABLE) -> int:
        """Allocate a TID; the test fails if that fails."""
        result, tid = self.try_allocate(mode)
        assert result == 0
        return tid

    def try_allocate(self, mode: int = TABLE) -> tuple[int, int]:
        """(result, tid), tid being 0xdeadbeef where it was not written."""
        tid = c.c_uint32(0xDEADBEEF)
        attr = TidAttr(mode)
        return int(self._lib.ummu_allocate_tid(attr, tid)), tid.value

    def free(self, tid: int) -> int:
        """ummu_free_tid."""
        return int(self._lib.ummu_free_tid(tid))

    def grant(
        self, tid: int, addr: int, size: int, perm: int = RW, token: int | Token | None = None, e_bit: int = 0
    ) -> int:
        """ummu_grant; an integer is a given token."""
        given = Token(0, token) if isinstance(token, int) else token
        attr = SegAttr(c.pointer(given) if given is not None else None, e_bit)
        c.memset(c.addressof(attr) + 12, 0xA5, 52)  # clients leave the reserve as it was
        return int(self._lib.ummu_grant(tid, addr, size, perm, attr))

    def ungrant(self, tid: int, addr: int, size: int) -> int:
        """ummu_ungrant."""
        return int(self._lib.ummu_ungrant(tid, addr, size))

    def by_token(self, tid: int, addr: int, size: int, token: int) -> int:
        """ummu_ungrant_by_token."""
        return int(self._lib.ummu_ungrant_by_token(tid, addr, size, token))

    # -- the stand-in ---------------------------------------------------------------------------

    def calls(self, since: int = 0) -> list[Call]:
        """What the library asked of the system, from a number of ``mark`` on; memory is not counted."""
        assert self.fake.calls - since <= CALLS_MAX
        return [self.fake.call[i % CALLS_MAX] for i in range(since, self.fake.calls)]

    def mark(self) -> int:
        """Now, for ``calls``."""
        return int(self.fake.calls)

    def fail(self, kind: int, after: int = 0, errno: int = 5) -> None:
        """Let the ``after``-th call from now of a kind fail."""
        self.fake.fail_kind, self.fake.fail_after, self.fake.fail_errno = kind, after, errno

    def no_fail(self) -> bool:
        """Take back ``fail``; True if the failure has happened."""
        happened = self.fake.fail_after < 0
        self.fake.fail_after = -1
        return happened

    def block(self, tid: int, index: int = 0) -> bytes | None:
        """Content of a mapped block."""
        at = self._lib.fake_block(tid, index)
        return c.string_at(at, self.fake.block_bytes) if at else None

    def blocks(self, tid: int) -> list[int]:
        """Indices of the mapped blocks."""
        return [i for i in range(512) if self._lib.fake_block(tid, i)]

    def dump(self, tid: int, mode: int = TABLE) -> mapt.Dump:
        """The table as the device and the decoder see it."""
        memory = Blocks(self, tid, mode)
        tcte = layouts.parse("TCTE", layouts.build("TCTE", **memory.fields()))
        dump = mapt.dump(memory, tcte, free_bit=bool(self.fake.hw_cap & FREE_BIT))
        assert dump.problems == []
        return dump

    def table(self, tid: int, mode: int = TABLE) -> bytes:
        """All blocks, to see that nothing changed."""
        size = self.fake.block_bytes if mode == TABLE else 4096
        return b"".join(c.string_at(self._lib.fake_block(tid, i), size) for i in self.blocks(tid))


class Blocks:
    """Guest memory holding a TID's blocks: block i at (i + 1) << 24, the block table at 1 << 36."""

    TABLE = 1 << 36

    def __init__(self, host: Host, tid: int, mode: int) -> None:
        self._host, self._tid = host, tid
        self._mode = mode
        self._size = int(host.fake.block_bytes) if mode == TABLE else 4096
        code = (self._size // 4096).bit_length() - 1
        present = set(host.blocks(tid))
        self._descs = b"".join(
            layouts.build("MAPT_BLOCK_DESC", V=1, BS=code, BA=(i + 1) << 24 >> 5)
            if i in present
            else bytes(8)
            for i in range(512)
        )
        self._code = code

    def fields(self) -> dict[str, int]:
        """TCTE fields that point here."""
        return {
            "V": 1,
            "MAPT_EN": 1,
            "MAPT_MODE": int(self._mode == TABLE),
            "MAPT_BBA": 1 << 24 >> 5,
            "MAPT_BB_SZ": self._code,
            "MAPT_BTA": self.TABLE >> 5,
            "RTGS": 1,
        }

    def read(self, addr: int, length: int) -> bytes:
        """Memory as the device reads it."""
        if addr >= self.TABLE:
            at = addr - self.TABLE
            return self._descs[at : at + length]
        index, offset = (addr >> 24) - 1, addr & 0xFFFFFF
        at = self._host.raw.fake_block(self._tid, index)
        if not at or offset + length > self._size:
            raise MemoryReadError(addr, length, "no block there")
        return c.string_at(at + offset, length)


@contextmanager
def loaded(library: Path) -> Iterator[Host]:
    """A fresh instance: a copy of the file, so that the loader takes it for another library."""
    folder = Path(tempfile.mkdtemp(prefix="ummulab-host-"))
    try:
        yield Host(Path(shutil.copy(library, folder / "libummu.so")))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Range(c.Structure):
    _fields_ = [("data", c.c_void_p), ("size", c.c_size_t), ("perm", c.c_int), ("attr", c.POINTER(SegAttr))]


class Answer(c.Structure):
    _fields_ = [("verdict", c.c_int), ("at", c.c_void_p)]


class Extended:
    """The functions of ummu_ext.h."""

    def __init__(self, host: Host) -> None:
        self._lib = lib = host.raw
        many = [c.c_uint32, c.POINTER(Range), c.c_size_t, c.POINTER(c.c_size_t)]
        lib.ummu_grant_many.argtypes = lib.ummu_ungrant_many.argtypes = many
        lib.ummu_query.argtypes = [
            *(c.c_uint32, c.c_void_p, c.c_size_t, c.c_int),
            *(c.POINTER(c.c_uint32), c.c_int, c.POINTER(Answer)),
        ]
        lib.ummu_rotate_token.argtypes = [c.c_uint32, c.c_void_p, c.c_size_t, c.c_uint32, c.POINTER(Token)]

    def grant_many(self, tid: int, ranges: list[tuple[int, int, int, int | None]]) -> tuple[int, int]:
        """(result, number of the failed range) of (addr, size, perm, token) ranges."""
        rows = [
            Range(a, n, perm, c.pointer(SegAttr(c.pointer(Token(0, t)) if t is not None else None, 0)))
            for a, n, perm, t in ranges
        ]
        return self._many(self._lib.ummu_grant_many, tid, rows)

    def ungrant_many(self, tid: int, ranges: list[tuple[int, int]]) -> tuple[int, int]:
        """(result, number of the failed range)."""
        return self._many(self._lib.ummu_ungrant_many, tid, [Range(a, n, 0, None) for a, n in ranges])

    def _many(self, function: Callable[..., int], tid: int, rows: list[Range]) -> tuple[int, int]:
        failed = c.c_size_t(999)
        return int(function(tid, (Range * len(rows))(*rows), len(rows), failed)), failed.value

    def query(
        self, tid: int, addr: int, size: int, access: int = R, token: int | None = None, e_bit: int = 1
    ) -> tuple[int, int, int | None]:
        """(result, verdict, first refused byte)."""
        answer = Answer(-1, 0)
        given = c.c_uint32(token) if token is not None else None
        result = int(self._lib.ummu_query(tid, addr, size, access, given, e_bit, answer))
        return result, answer.verdict, answer.at

    def rotate(self, tid: int, addr: int, size: int, old: int, new: int | Token) -> int:
        """ummu_rotate_token."""
        token = Token(0, new) if isinstance(new, int) else new
        return int(self._lib.ummu_rotate_token(tid, addr, size, old, token))
