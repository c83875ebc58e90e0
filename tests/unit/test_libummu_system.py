# SPDX-License-Identifier: GPL-2.0-or-later
"""What libummu asks of the system (ummu-core-abi.md section 5), failing parts, fork, threads, logging."""

from __future__ import annotations

import ctypes as c
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from libummu_host import host as h
from libummu_host.host import EINVAL, ENTRY, REPO, SANITIZE, Host

A = 0x7F00_0000_1000
IOCTLS = {h.IOC_ALLOC: "ALLOC", h.IOC_FREE: "FREE", h.IOC_VA: "VA", h.IOC_ALL: "ALL"}
COMMANDS = {h.PSYNC: "psync", h.CMD_ALL: "all", h.CMD_VA: "va", h.CMD_NODE: "node"}


def trace(host: Host, since: int) -> list[str]:
    """System calls in words; memory and random numbers are left out."""
    words = []
    for call in host.calls(since):
        if call.kind == h.IOCTL:
            more = f" {call.a:#x}+{call.b:#x}" if call.what == h.IOC_VA else ""
            words.append(f"{IOCTLS[call.what]}{more}")
        elif call.kind == h.MAP:
            words.append("mmap queues" if call.b >> 12 & 3 == 2 else f"mmap {call.b >> 14 & 511}")
        elif call.kind == h.UNMAP:
            words.append("munmap queues" if not call.tid else f"munmap {call.b}")
        elif call.kind == h.QUEUE:
            words.append(COMMANDS[call.what])
    return words


@pytest.fixture
def device(lib: Host) -> Iterator[Host]:
    """A library whose invalidations go through user queues, with the device running."""
    lib.fake.hw_cap = h.EXPAN
    lib.raw.fake_device_start()
    try:
        yield lib
    finally:
        lib.raw.fake_device_stop()


# -- 5 of the ABI: the sequence ---------------------------------------------------------------------


def test_abi_5_sequence_with_ioctls(lib: Host) -> None:
    mark = lib.mark()
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x3000) == 0
    assert lib.ungrant(tid, A, 0x3000) == 0
    assert lib.free(tid) == 0
    wanted = ["ALLOC", "mmap 0", f"VA {A:#x}+0x3000", "munmap 0", "ALL", "FREE"]
    assert trace(lib, mark) == wanted


def test_abi_4_offsets_of_the_mappings(lib: Host) -> None:
    lib.fake.hw_cap = h.EXPAN
    mark = lib.mark()
    assert lib.allocate() == 0x100
    assert [call.b for call in lib.calls(mark) if call.kind == h.MAP] == [0x402000, 0x1_0000_1000]


def test_abi_5_second_token_invalidates_unless_pplbi(lib: Host) -> None:
    for caps, wanted in ((h.KCMD, [f"VA {A:#x}+0x1000"]), (h.KCMD | h.PPLBI, [])):
        lib.fake.hw_cap = caps
        tid = lib.allocate()
        assert lib.grant(tid, A, 0x1000, token=1) == 0
        mark = lib.mark()
        assert lib.grant(tid, A, 0x1000, token=2) == 0
        assert trace(lib, mark) == wanted


def test_abi_5_second_token_in_entry_mode(lib: Host) -> None:
    tid = lib.allocate(ENTRY)
    assert lib.grant(tid, A, 5, token=1) == 0
    mark = lib.mark()
    assert lib.grant(tid, A, 5, token=2) == 0
    assert trace(lib, mark) == [f"VA {A:#x}+0x5"]


def test_abi_5_with_queues(device: Host) -> None:
    mark = device.mark()
    tid = device.allocate()
    assert device.grant(tid, A, 0x3000) == 0
    assert device.ungrant(tid, A, 0x3000) == 0
    assert device.free(tid) == 0
    wanted = [
        "ALLOC",
        "mmap queues",
        "mmap 0",
        "va",
        "psync",
        "munmap 0",
        "all",
        "psync",
        "munmap queues",
        "FREE",
    ]
    assert trace(device, mark) == wanted


def test_abi_6_double_sends_everything_twice_to_every_ummu(device: Host) -> None:
    device.fake.hw_cap = h.EXPAN | h.DOUBLE
    device.fake.ummu_cnt = 3
    tid = device.allocate()
    assert device.grant(tid, A, 0x3000) == 0
    mark = device.mark()
    assert device.ungrant(tid, A, 0x3000) == 0
    assert trace(device, mark) == ["va", "psync"] * 6


def test_abi_6_command_carries_address_and_exponent(device: Host) -> None:
    tid = device.allocate()
    for size, exponent in ((1, 0), (2, 1), (0x3000, 14), (0x4000, 14), (0x4001, 15)):
        assert device.grant(tid, A, size) == 0
        mark = device.mark()
        assert device.ungrant(tid, A, size) == 0
        first = next(call for call in device.calls(mark) if call.kind == h.QUEUE)
        assert (first.a, first.b) == (A, exponent)


def test_v13_indices_wrap_many_times(device: Host) -> None:
    tid = device.allocate()
    mark = device.mark()
    for _ in range(700):  # 1400 commands through a ring of 256, 700 completions through one of 1024
        assert device.grant(tid, A, 0x1000) == 0
        assert device.ungrant(tid, A, 0x1000) == 0
    assert trace(device, mark) == ["va", "psync"] * 700


@pytest.mark.parametrize("how", ["dead", "fail"])
def test_8_3_a_queue_that_does_not_confirm_is_followed_by_the_ioctl(device: Host, how: str) -> None:
    """The original ignores it: the access would still be open when ungrant returns (section 8, fault 3)."""
    tid = device.allocate()
    assert device.grant(tid, A, 0x3000) == 0
    setattr(device.fake, f"queues_{how}", 1)
    mark = device.mark()
    assert device.ungrant(tid, A, 0x3000) == 0
    assert f"VA {A:#x}+0x3000" in trace(device, mark)


def test_a_full_queue_is_followed_by_the_ioctl(device: Host) -> None:
    tid = device.allocate()
    device.fake.queues_dead = 1
    page = (c.c_uint16 * 8).from_address(device.raw.fake_queue(tid) + 2 * 4096)
    page[0] = 256  # as if 256 commands were waiting
    assert device.grant(tid, A, 0x1000) == 0
    mark = device.mark()
    assert device.ungrant(tid, A, 0x1000) == 0
    assert trace(device, mark) == [f"VA {A:#x}+0x1000"]
    page[0] = 0


@pytest.mark.parametrize(
    ("field", "value"), [("ummu_cnt", 0), ("ummu_cnt", 65), ("pcmdq_order", 8), ("pcplq_order", 6)]
)
def test_unusable_queues_are_enomem(lib: Host, field: str, value: int) -> None:
    lib.fake.hw_cap = h.EXPAN
    setattr(lib.fake, field, value)
    assert lib.try_allocate()[0] == h.ENOMEM
    assert (lib.raw.fake_tids_alive(), lib.fake.allocations) == (0, 0)


def test_8_4_kernel_command_and_free_bit_together(lib: Host) -> None:
    """The original drops this invalidation; ours sends one for the node's addresses."""
    lib.fake.hw_cap = h.KCMD | h.FREE_BIT | h.EXPAN
    tid = lib.allocate()
    for i in range(3):
        assert lib.grant(tid, A + i * 0x2000, 0x1000) == 0
    mark = lib.mark()
    for i in range(3):
        assert lib.ungrant(tid, A + i * 0x2000, 0x1000) == 0
    assert sum(word.startswith("VA") for word in trace(lib, mark)) >= 3
    assert all(word.startswith(("VA", "munmap")) for word in trace(lib, mark))


def test_8_1_blocks_are_given_back_in_any_order(lib: Host) -> None:
    """The original leaks a block whose first table is empty (section 8, fault 1)."""
    lib.fake.block_bytes = 32 << 10
    for seed in range(5):
        rng = random.Random(seed)
        tid = lib.allocate()
        ranges = [(i << 39 | j << 30 | k << 21, 0x1000) for i in range(3) for j in range(4) for k in (1, 3)]
        ranges += [(addr + 0x2000, size) for addr, size in ranges]
        for addr, size in ranges:
            assert lib.grant(tid, addr, size) == 0
        assert len(lib.blocks(tid)) > 3
        rng.shuffle(ranges)
        for addr, size in ranges[: len(ranges) // 2]:
            assert lib.ungrant(tid, addr, size) == 0
        assert lib.free(tid) == 0
        assert lib.raw.fake_tids_alive() == 0, "the kernel refused the TID: something is still mapped"


# -- failing parts ----------------------------------------------------------------------------------


def scenario(host: Host) -> None:
    """Allocate, grant, ungrant, free; every call may fail."""
    result, tid = host.try_allocate()
    if result:
        return
    for i in range(6):
        host.grant(tid, i << 39, 0x3000, token=1)
        host.grant(tid, (i << 39) + 0x4000, 0x3000)
    host.grant(tid, 0, 0x3000, token=2)
    host.by_token(tid, 0, 0x3000, 1)
    for i in range(0, 6, 2):
        host.ungrant(tid, i << 39, 0x3000)
    host.free(tid)


@pytest.mark.parametrize("caps", [h.KCMD | h.EXPAN, h.EXPAN], ids=["ioctl", "queue"])
@pytest.mark.parametrize("kind", [h.IOCTL, h.MAP, h.ALLOC, h.RANDOM], ids=["ioctl", "map", "alloc", "random"])
def test_nothing_is_lost_whatever_fails(lib: Host, kind: int, caps: int) -> None:
    lib.fake.hw_cap = caps
    lib.fake.block_bytes = 16 << 10
    lib.raw.fake_device_start()
    try:
        scenario(lib)
        kept = lib.fake.allocations  # the registry's own memory stays
        for at in range(200):
            lib.fail(kind, at, 12)
            scenario(lib)
            happened = lib.no_fail()
            assert lib.fake.allocations == kept, f"call {at}"
            # Only a refused FREE leaves the TID with the kernel; that is the kernel's word, not a leak of ours.
            assert lib.raw.fake_tids_alive() <= (1 if kind == h.IOCTL else 0)
            for tid in range(0x100, lib.fake.next_tid):
                assert lib.blocks(tid) == []
            if not happened:
                break
            if lib.raw.fake_tids_alive():
                break
        else:
            pytest.fail("no end")
    finally:
        lib.raw.fake_device_stop()


# -- fork, threads, exit ----------------------------------------------------------------------------


def in_child(work: Callable[[], bool]) -> bool:
    """Run in a forked child; True if it returned True."""
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_v07_fork(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x1000) == 0

    def child() -> bool:
        refused = [
            lib.grant(tid, A, 1),
            lib.ungrant(tid, A, 0x1000),
            lib.by_token(tid, A, 1, 0),
            lib.free(tid),
        ]
        own = lib.allocate()
        return (
            refused == [EINVAL] * 4
            and own != tid
            and lib.grant(own, A, 0x1000) == 0
            and lib.free(own) == 0
            and lib.fake.open_fds == 1
            and in_child(lambda: lib.free(own) == EINVAL and lib.allocate() != 0)
        )

    for _ in range(5):
        assert in_child(child)
    assert lib.ungrant(tid, A, 0x1000) == 0
    assert lib.free(tid) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork_while_other_threads_work(lib: Host) -> None:
    stop = threading.Event()
    failures: list[str] = []

    def work() -> None:
        tid = lib.allocate()
        while not stop.is_set():
            if lib.grant(tid, A, 0x1000) or lib.ungrant(tid, A, 0x1000):
                failures.append("a call failed")
        if lib.free(tid):
            failures.append("free failed")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: lib.free(lib.allocate()) == 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert failures == []


def test_threads_on_one_and_on_many_tids(lib: Host) -> None:
    shared = lib.allocate()
    failures: list[str] = []

    def work(number: int) -> None:
        own = lib.allocate()
        rng = random.Random(number)
        for i in range(300):
            place = (number << 40) + rng.randrange(1000) * 0x10000
            for tid in (own, shared):
                if lib.grant(tid, place, 0x5000, token=i) or lib.by_token(tid, place, 0x5000, i):
                    failures.append(f"thread {number}, tid {tid:#x}, step {i}")
        if lib.free(own):
            failures.append("free")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert list(lib.dump(shared).ranges()) == []
    assert lib.free(shared) == 0


def test_free_races_with_calls_on_the_same_tid(lib: Host) -> None:
    for _ in range(30):
        tid = lib.allocate()
        results: list[int] = []

        def work(tid: int = tid, results: list[int] = results) -> None:
            for i in range(50):
                results.append(lib.grant(tid, i << 30, 0x1000))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert lib.free(tid) == 0
        for thread in threads:
            thread.join(30)
        assert set(results) <= {0, EINVAL}
    assert lib.raw.fake_tids_alive() == 0


def test_6_normal_exit_unmaps_and_closes_without_free(libummu_file: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from libummu_host.host import Host\n"
        "lib = Host(sys.argv[2])\n"
        "lib.grant(lib.allocate(), 0, 1); lib.allocate()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(libummu_file)],
        env={**os.environ, "FAKE_TRACE": str(tmp_path / "trace")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    calls = [tuple(map(int, line.split())) for line in (tmp_path / "trace").read_text().splitlines()]
    after = [(kind, what) for kind, what, _ in calls if kind in (h.IOCTL, h.UNMAP, h.CLOSE)][2:]
    assert after == [(h.UNMAP, 0), (h.IOCTL, h.IOC_ALL)] * 2 + [(h.CLOSE, 0)]


# -- logging ----------------------------------------------------------------------------------------

EMIT = c.CFUNCTYPE(None, c.c_int, c.c_char_p)


class Backend(c.Structure):
    _fields_ = [("name", c.c_char_p), ("emit", EMIT), ("reserved", c.c_void_p * 4)]


def test_7_log_back_ends(lib: Host) -> None:
    lines: list[tuple[int, bytes]] = []
    other: list[tuple[int, bytes]] = []
    first, second = (
        EMIT(lambda level, text: lines.append((level, text))),
        EMIT(lambda lv, t: other.append((lv, t))),
    )
    register = lib.raw.ummu_log_register_backend
    assert register(None) == EINVAL
    assert register(c.byref(Backend(b"x", EMIT(), (c.c_void_p * 4)()))) == EINVAL
    assert register(c.byref(Backend(b"mine", first, (c.c_void_p * 4)()))) == 0
    tid = lib.allocate()
    assert lib.free(tid) == 0
    assert [level for level, _ in lines] == [6, 6]
    assert all(text.startswith(b"[UMMU][") and text.endswith(b"\n") and b"0x100" in text for _, text in lines)
    assert register(c.byref(Backend(None, second, (c.c_void_p * 4)()))) == 0
    assert b"unknown" in lines[-1][1]  # the old sink learns of the new one
    lib.fail(h.IOCTL)
    assert lib.try_allocate()[0] == -1
    assert [level for level, _ in other] == [3]
    lib.raw.ummu_log_restore_default()
    assert other[-1][0] == 6
    seen = len(other)
    lib.allocate()
    assert len(other) == seen


def test_7_a_back_end_may_change_the_back_end(lib: Host) -> None:
    seen: list[bytes] = []
    register, restore = lib.raw.ummu_log_register_backend, lib.raw.ummu_log_restore_default

    def emit(_level: int, text: bytes) -> None:
        seen.append(text)
        if len(seen) < 3:
            restore()

    keep = EMIT(emit)
    assert register(c.byref(Backend(b"x" * 500, keep, (c.c_void_p * 4)()))) == 0
    lib.allocate()
    assert seen


# -- sanitizers -------------------------------------------------------------------------------------


@pytest.mark.skipif(bool(SANITIZE), reason="this is the run under a sanitizer")
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_clean_under_sanitizers(sanitizer: str) -> None:
    """Threads without the user queues: those are shared with a device, by barriers and not by locks."""
    runtime = {"address": "libasan.so", "thread": "libtsan.so"}[sanitizer]
    found = subprocess.run(["gcc", f"-print-file-name={runtime}"], capture_output=True, text=True, check=True)
    env = {
        **os.environ,
        "UMMULAB_LIBUMMU_SANITIZE": sanitizer,
        "LD_PRELOAD": found.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=66",
        "TSAN_OPTIONS": "exitcode=66:report_signal_unsafe=0",
    }
    names = (
        ["test_libummu_system.py"]
        if sanitizer == "thread"
        else ["test_libummu_calls.py", "test_libummu_system.py"]
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0"]
    kinds = {
        "thread": "test_threads or test_free_races or fork_while",
        "address": "test_4_ or test_5_ or test_v0",
    }
    if not os.environ.get("UMMULAB_LONG"):
        argv += ["-k", kinds[sanitizer]]
    argv += [str(REPO / "tests/unit" / name) for name in names]
    done = subprocess.run(argv, cwd=REPO, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
