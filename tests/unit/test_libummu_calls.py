# SPDX-License-Identifier: GPL-2.0-or-later
"""Each row of the tables of libummu-api.md, sections 4 and 5; the names say which."""

from __future__ import annotations

import ctypes as c
import os
import subprocess
import sys
from pathlib import Path

import pytest
from libummu_host import host as h
from libummu_host.host import EINVAL, ENOMEM, ENTRY, ERANGE, REPO, RW, TABLE, Host, R, Token
from libummu_host.oracle import Oracle

A = 0x7F00_0000_1000
TOP = 1 << 48


# -- 4.1, 4.2 -------------------------------------------------------------------------------------


def test_4_1_without_the_node_everything_is_einval(libummu_file: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from libummu_host.host import Host\n"
        "l = Host(sys.argv[2])\n"
        "print(l.try_allocate()[0], l.grant(1, 0, 1), l.ungrant(1, 0, 1), l.by_token(1, 0, 1, 0), l.free(1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(libummu_file)],
        env={**os.environ, "FAKE_NODE_MISSING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["-22"] * 5, done.stderr


@pytest.mark.parametrize("mode", [-1, 2, 3, 0x7FFFFFFF])
def test_4_2_mode_out_of_range(lib: Host, mode: int) -> None:
    mark = lib.mark()
    assert lib.try_allocate(mode) == (EINVAL, 0xDEADBEEF)
    assert lib.calls(mark) == []


def test_4_2_null_pointers(lib: Host) -> None:
    tid = c.c_uint32()
    assert lib.raw.ummu_allocate_tid(None, tid) == EINVAL
    assert lib.raw.ummu_allocate_tid(h.TidAttr(TABLE), None) == EINVAL
    assert lib.fake.fail_after == -1


def test_4_2_kernel_refuses_is_minus_1(lib: Host) -> None:
    lib.fail(h.IOCTL, errno=28)
    assert lib.try_allocate() == (-1, 0xDEADBEEF)
    assert lib.fake.allocations == 0


@pytest.mark.parametrize("size", [0, 4096, 8192, 0x3000, 0x18000, 4 << 20])
def test_4_2_unusable_block_size(lib: Host, size: int) -> None:
    lib.fake.block_bytes = size
    assert lib.try_allocate() == (ENOMEM, 0xDEADBEEF)
    assert lib.raw.fake_tids_alive() == 0
    assert lib.fake.allocations == 0


@pytest.mark.parametrize("size", [16 << 10, 32 << 10, 64 << 10, 2 << 20])
def test_4_2_usable_block_sizes(lib: Host, size: int) -> None:
    """16 and 32 KiB crashed the original (section 8, fault 5)."""
    lib.fake.block_bytes = size
    tid = lib.allocate()
    for i in range(40):
        assert lib.grant(tid, i << 40, 0x3000) == 0
    lib.dump(tid)
    assert lib.free(tid) == 0


@pytest.mark.parametrize("caps", [h.KCMD | h.EXPAN, h.EXPAN])
@pytest.mark.parametrize("kind", [h.MAP, h.ALLOC])
def test_4_2_out_of_memory_at_each_step(lib: Host, caps: int, kind: int) -> None:
    lib.fake.hw_cap = caps
    for step in range(20):
        lib.fail(kind, step, 12)
        result, tid = lib.try_allocate()
        if not lib.no_fail():
            assert result == 0
            assert lib.free(tid) == 0
            break
        assert (result, tid) == (ENOMEM, 0xDEADBEEF)
        assert (lib.raw.fake_tids_alive(), lib.fake.allocations) in ((0, 0), (0, lib.fake.allocations))
    else:
        pytest.fail("no end of steps")
    assert step > 0


def test_4_2_an_id_that_is_held_already(lib: Host) -> None:
    tid = lib.allocate()
    lib.fake.same_tid = tid
    assert lib.try_allocate() == (-1, 0xDEADBEEF)
    lib.fake.same_tid = 0


def test_4_2_many_tids(lib: Host) -> None:
    tids = [lib.allocate(i % 2) for i in range(40)]
    assert len(set(tids)) == 40
    assert [lib.free(tid) for tid in tids] == [0] * 40
    assert lib.raw.fake_tids_alive() == 0


# -- 4.3 ------------------------------------------------------------------------------------------


def test_4_3_null_attr(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.raw.ummu_grant(tid, A, 4096, RW, None) == EINVAL


@pytest.mark.parametrize("tid", [0, 1, 0x101, 0xFFFFF, 0x100000, 0xFFFFFFFF])
def test_4_3_unknown_tid(lib: Host, tid: int) -> None:
    assert lib.allocate() == 0x100
    assert lib.grant(tid, A, 4096) == EINVAL
    assert lib.ungrant(tid, A, 4096) == EINVAL
    assert lib.by_token(tid, A, 4096, 0) == EINVAL
    assert lib.free(tid) == EINVAL


@pytest.mark.parametrize(
    ("addr", "size", "result"),
    [
        (A, 0, EINVAL),
        (TOP, 1, EINVAL),
        (TOP - 4096, 4097, EINVAL),
        (TOP - 4096, 4096, 0),
        (0, TOP + 1, EINVAL),
        (0, TOP, 0),
        (0, 1, 0),
        (4096, TOP, EINVAL),
        ((1 << 64) - 4096, 8192, EINVAL),
        ((1 << 64) - 4096, 4096, EINVAL),
        (0, (1 << 64) - 1, EINVAL),
        (A | 1 << 60, 4096, EINVAL),
        (A + 1, 4096, EINVAL),
        (A + 2048, 1, EINVAL),
        (A, 1, 0),
        (A, 4097, 0),
    ],
)
def test_4_3_v05_addresses_in_table_mode(lib: Host, addr: int, size: int, result: int) -> None:
    tid = lib.allocate()
    before = lib.table(tid)
    assert lib.grant(tid, addr, size) == result
    oracle = Oracle()
    assert oracle.grant(addr, size, RW, None, 0) == result
    oracle.check(lib, tid)
    assert (lib.table(tid) == before) is (result != 0)


@pytest.mark.parametrize("perm", range(-1, 10))
def test_4_3_v01_permissions(lib: Host, perm: int) -> None:
    tid = lib.allocate()
    before = lib.table(tid)
    legal = perm in (1, 2, 3, 5, 6, 7)
    assert lib.grant(tid, A, 4096, perm) == (0 if legal else EINVAL)
    if legal:
        assert [r.entry["PERMISSION"] for r in lib.dump(tid).ranges()] == [perm]
    else:
        assert lib.table(tid) == before


@pytest.mark.parametrize(("e_bit", "result"), [(0, 0), (1, 0), (2, EINVAL), (-1, EINVAL)])
def test_4_3_e_bit(lib: Host, e_bit: int, result: int) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096, e_bit=e_bit) == result
    if not result:
        assert [r.entry["E_BIT"] for r in lib.dump(tid).ranges()] == [e_bit]


@pytest.mark.parametrize(("given", "result"), [(0, 0), (1, 0), (2, EINVAL), (0xFFFFFFFF, EINVAL)])
def test_4_3_token_input(lib: Host, given: int, result: int) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096, token=Token(given, 5)) == result


@pytest.mark.parametrize("value", [0, 1, 0xFFFFFFFF])
def test_4_3_given_token_is_an_ordinary_value(lib: Host, value: int) -> None:
    tid = lib.allocate()
    token = Token(0, value)
    assert lib.grant(tid, A, 4096, token=token) == 0
    assert token.value == value
    (only,) = lib.dump(tid).ranges()
    assert (only.entry["TOKEN_CHK"], only.entry["TOKEN_VAL_0"]) == (1, value)


def test_4_3_no_token_is_no_check(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096) == 0
    (only,) = lib.dump(tid).ranges()
    assert only.entry["TOKEN_CHK"] == 0


def test_4_3_chosen_token_is_written_back(lib: Host) -> None:
    tid = lib.allocate()
    token = Token(1, 0)
    assert lib.grant(tid, A, 4096, token=token) == 0
    (only,) = lib.dump(tid).ranges()
    assert only.entry["TOKEN_VAL_0"] == token.value
    lib.fail(h.RANDOM)
    before = lib.table(tid)
    assert lib.grant(tid, A + 0x10000, 4096, token=Token(1, 0)) == EINVAL
    assert lib.table(tid) == before


def test_4_3_no_expansion_is_erange_and_rolled_back(lib: Host) -> None:
    lib.fake.hw_cap = h.KCMD
    lib.fake.block_bytes = 16 << 10  # the root and nothing else
    tid = lib.allocate()
    oracle = Oracle()
    # A range that needs a lower level: its node is taken by a range that begins before it.
    assert lib.grant(tid, 0, 0x1000) == oracle.grant(0, 0x1000, RW, None, 0) == 0
    before = lib.table(tid)
    assert lib.grant(tid, 0x2000, 0x1000) == ERANGE
    assert lib.table(tid) == before
    oracle.check(lib, tid)
    assert lib.grant(tid, 1 << 39, 0x1000) == 0


@pytest.mark.parametrize("kind", [h.MAP, h.ALLOC])
def test_4_3_failing_memory_is_enomem_and_rolled_back(lib: Host, kind: int) -> None:
    lib.fake.block_bytes = 16 << 10
    tid = lib.allocate()
    oracle = Oracle()
    for i in range(257):
        addr = i << 31
        lib.fail(kind, 0, 12)
        result = lib.grant(tid, addr, 0x5000)
        if lib.no_fail():
            assert result == ENOMEM
            result = lib.grant(tid, addr, 0x5000)
        assert result == oracle.grant(addr, 0x5000, RW, None, 0) == 0
    oracle.check(lib, tid)


# -- 4.4, 4.5 -------------------------------------------------------------------------------------


def test_4_4_size_0_is_enomem_also_for_an_unknown_tid(lib: Host) -> None:
    assert lib.ungrant(0x999, A, 0) == ENOMEM
    assert lib.by_token(0x999, A, 0, 1) == ENOMEM
    assert lib.ungrant(lib.allocate(), A, 0) == ENOMEM


@pytest.mark.parametrize(
    ("addr", "size"),
    [
        (A, 0x2FFF),
        (A, 0x3001),
        (A + 0x1000, 0x2000),
        (A - 0x1000, 0x4000),
        (A + 1, 0x2FFF),
        (0, 1),
        (A | 1 << 48, 0x3000),
    ],
)
def test_4_4_only_the_exact_range(lib: Host, addr: int, size: int) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x3000, token=1) == 0
    before = lib.table(tid)
    assert lib.ungrant(tid, addr, size) == EINVAL
    assert lib.by_token(tid, addr, size, 1) == EINVAL
    assert lib.table(tid) == before
    assert lib.ungrant(tid, A, 0x3000) == 0
    assert list(lib.dump(tid).ranges()) == []
    assert lib.ungrant(tid, A, 0x3000) == EINVAL


def test_4_4_by_token(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096) == 0
    assert lib.by_token(tid, A, 4096, 0) == EINVAL  # granted without a token
    assert lib.ungrant(tid, A, 4096) == 0
    assert lib.grant(tid, A, 4096, token=1) == 0
    assert lib.grant(tid, A, 4096, token=2) == 0
    assert lib.by_token(tid, A, 4096, 3) == EINVAL
    assert lib.by_token(tid, A, 4096, 1) == 0
    (only,) = lib.dump(tid).ranges()
    assert (only.entry["TOKEN_VAL_0"], only.entry["TOKEN_VAL_1"]) == (2, 2)
    assert lib.by_token(tid, A, 4096, 1) == EINVAL
    assert lib.by_token(tid, A, 4096, 2) == 0
    assert list(lib.dump(tid).ranges()) == []


def test_5_equal_tokens_count_twice(lib: Host) -> None:
    tid = lib.allocate()
    assert [lib.grant(tid, A, 4096, token=7) for _ in range(3)] == [0, 0, EINVAL]
    assert [lib.by_token(tid, A, 4096, 7) for _ in range(3)] == [0, 0, EINVAL]


def test_4_4_failing_invalidation_changes_no_result(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096) == 0
    lib.fail(h.IOCTL)
    assert lib.ungrant(tid, A, 4096) == 0
    assert lib.no_fail()


def test_4_5_free(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096) == 0
    assert lib.free(tid) == 0
    assert lib.free(tid) == EINVAL
    assert lib.grant(tid, A, 4096) == EINVAL
    assert (lib.raw.fake_tids_alive(), lib.fake.allocations > 1) == (0, False)


def test_4_5_free_is_0_also_when_the_kernel_refuses(lib: Host) -> None:
    tid = lib.allocate()
    lib.fail(h.IOCTL, 1)  # the first one is the invalidation
    assert lib.free(tid) == 0
    assert lib.no_fail()
    assert lib.free(tid) == EINVAL


# -- 5 --------------------------------------------------------------------------------------------


def test_5_v02_a_second_grant_on_the_same_range(lib: Host) -> None:
    tid = lib.allocate()
    steps = [
        ((A, 0x3000, R, 1, 0), 0),
        ((A, 0x3000, R, 2, 0), 0),
        ((A, 0x3000, R, 3, 0), EINVAL),
        ((A, 0x3000, R, None, 0), EINVAL),
        ((A, 0x3000, RW, 2, 0), EINVAL),
        ((A, 0x3000, R, 2, 1), EINVAL),
        ((A + 0x1000, 0x1000, R, 1, 0), EINVAL),
        ((A - 0x1000, 0x5000, R, 1, 0), EINVAL),
        ((A + 0x3000, 1, R, 1, 0), 0),
        ((A, 0x2FFF, R, 1, 0), EINVAL),
    ]
    oracle = Oracle()
    for args, result in steps:
        before = lib.table(tid)
        assert lib.grant(tid, *args) == result, args
        assert oracle.grant(*args) == result
        assert (lib.table(tid) == before) is (result != 0)
        oracle.check(lib, tid)


def test_5_token_over_none_and_none_over_token(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 4096) == 0
    assert lib.grant(tid, A, 4096, token=1) == EINVAL
    assert lib.grant(tid, A, 4096) == EINVAL


def test_5_neighbours_stay_two_ranges(lib: Host) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x1000) == lib.grant(tid, A + 0x1000, 0x1000) == 0
    assert lib.ungrant(tid, A, 0x2000) == EINVAL
    assert lib.ungrant(tid, A + 0x1000, 0x1000) == lib.ungrant(tid, A, 0x1000) == 0


def test_5_tids_are_independent(lib: Host) -> None:
    one, two = lib.allocate(), lib.allocate()
    assert lib.grant(one, A, 0x3000) == lib.grant(two, A + 0x1000, 0x1000, R) == 0
    assert lib.ungrant(two, A, 0x3000) == EINVAL
    assert lib.free(one) == 0
    assert len(list(lib.dump(two).ranges())) == 1


def test_5_v05_entry_mode(lib: Host) -> None:
    tid = lib.allocate(ENTRY)
    oracle = Oracle(ENTRY)
    for args, result in [
        ((0x1234, 0x77, R, None, 0), 0),
        ((0x1234, 0x77, R, 1, 0), EINVAL),
        ((0x5000, 0x1000, R, None, 0), EINVAL),
    ]:
        assert lib.grant(tid, *args) == result == oracle.grant(*args)
        oracle.check(lib, tid)
    (only,) = lib.dump(tid, ENTRY).ranges()
    assert (only.first, only.last) == (0x1234, 0x12AA)
    assert lib.ungrant(tid, 0x1234, 0x77) == 0
    assert list(lib.dump(tid, ENTRY).ranges()) == []
    assert lib.grant(tid, TOP - 1, 1, RW, 9) == 0
    assert lib.grant(tid, TOP - 1, 1, RW, 9) == 0
    assert [lib.by_token(tid, TOP - 1, 1, 9) for _ in range(3)] == [0, 0, EINVAL]


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize(("before", "after"), [(1, 1), (0, 1), (1, 0), (4096, 4096), (3, 5)])
def test_v03_ranges_that_straddle_level_boundaries(lib: Host, level: int, before: int, after: int) -> None:
    """Head, middle and tail around each boundary, with occupied neighbours on both sides."""
    tid = lib.allocate()
    oracle = Oracle()
    span = 1 << (39 - 9 * level)
    edge = (1 << 41) + 5 * span
    wanted = [
        (edge - 4096 * (before + 8), 4096, R, 1),
        (edge + 4096 * (after + 8), 4096, R, 2),
        (edge - 4096 * before if before else edge, 4096 * (before + after), RW, 3),
        (edge + span, 3 * span + 12345, RW, None),
    ]
    for addr, size, perm, token in wanted:
        assert lib.grant(tid, addr, size, perm, token) == oracle.grant(addr, size, perm, token, 0)
        oracle.check(lib, tid)
    for addr, size, _, _ in wanted:
        assert lib.ungrant(tid, addr, size) == oracle.ungrant(addr, size)
        oracle.check(lib, tid)
    assert lib.blocks(tid) == [0]


# -- the file itself ------------------------------------------------------------------------------


def test_exports_are_the_interface(tmp_path: Path) -> None:
    subprocess.run(
        ["make", "-s", "-C", str(REPO / "guest/libummu"), f"BUILD={tmp_path}"],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(tmp_path / "libummu.so.1")],
        capture_output=True,
        text=True,
        check=True,
    )
    functions = {line.split()[2].split("@")[0] for line in done.stdout.splitlines() if " T " in line}
    assert functions == {
        "ummu_allocate_tid",
        "ummu_free_tid",
        "ummu_grant",
        "ummu_grant_many",
        "ummu_log_register_backend",
        "ummu_log_restore_default",
        "ummu_query",
        "ummu_rotate_token",
        "ummu_ungrant",
        "ummu_ungrant_by_token",
        "ummu_ungrant_many",
    }
    needed = subprocess.run(
        ["readelf", "-d", str(tmp_path / "libummu.so.1")], capture_output=True, text=True, check=True
    )
    assert "SONAME" in needed.stdout and "[libummu.so.1]" in needed.stdout
    assert "stdc++" not in needed.stdout
