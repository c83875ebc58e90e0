# SPDX-License-Identifier: GPL-2.0-or-later
"""libummu beyond the original: batches, look-up, change of token."""

from __future__ import annotations

import random

import pytest
from libummu_host import host as h
from libummu_host.host import EINVAL, ENOMEM, ENTRY, RW, Extended, Host, R, Token, W
from libummu_host.oracle import Oracle

A = 0x7F00_0000_1000
ALLOWED, NOT_GRANTED, WRONG_EBIT, WRONG_ACCESS, WRONG_TOKEN = range(5)


@pytest.fixture
def ext(lib: Host) -> Extended:
    return Extended(lib)


def invalidations(lib: Host, since: int) -> list[str]:
    names = {h.IOC_VA: "VA", h.IOC_ALL: "ALL"}
    return [names[call.what] for call in lib.calls(since) if call.kind == h.IOCTL and call.what in names]


# -- batches ----------------------------------------------------------------------------------------


def test_a_batch_is_told_once(lib: Host, ext: Extended) -> None:
    tid = lib.allocate()
    ranges = [(A + i * 0x3000, 0x2000, RW, i) for i in range(1000)]
    oracle = Oracle()
    for addr, size, perm, token in ranges:
        oracle.grant(addr, size, perm, token, 0)
    mark = lib.mark()
    assert ext.grant_many(tid, ranges) == (0, 999)
    assert len(invalidations(lib, mark)) <= 1
    oracle.check(lib, tid)
    mark = lib.mark()
    assert ext.ungrant_many(tid, [(addr, size) for addr, size, _, _ in ranges]) == (0, 999)
    told = invalidations(lib, mark)
    assert set(told) == {"ALL"}
    assert len(told) < 20  # one, and one before each emptied block is given back
    assert not any(lib.table(tid))


def test_an_empty_batch_is_nothing(lib: Host, ext: Extended) -> None:
    tid = lib.allocate()
    mark = lib.mark()
    assert ext.grant_many(tid, []) == ext.ungrant_many(tid, []) == (0, 999)
    assert lib.calls(mark) == []


@pytest.mark.parametrize("caps", [h.KCMD | h.EXPAN, h.KCMD | h.EXPAN | h.PPLBI])
@pytest.mark.parametrize("bad", range(6))
def test_grant_many_is_all_or_none(lib: Host, ext: Extended, caps: int, bad: int) -> None:
    """The batch opens ranges and adds second tokens; then one of it fails."""
    lib.fake.hw_cap = caps
    tid = lib.allocate()
    oracle = Oracle()
    for args in ((A, 0x1000, R, 1, 0), (A + 0x8000, 0x1000, RW, None, 0)):
        assert lib.grant(tid, *args) == oracle.grant(*args) == 0
    ranges = [(A, 0x1000, R, 2), *((A + 0x10000 * i, 0x5000, RW, i) for i in range(1, 5))]
    ranges.insert(bad, (A + 0x8000, 0x800, RW, 7))  # meets an open range
    assert ext.grant_many(tid, ranges) == (EINVAL, bad)
    oracle.check(lib, tid)
    assert lib.by_token(tid, A, 0x1000, 2) == EINVAL
    del ranges[bad]
    assert ext.grant_many(tid, ranges) == (0, 999)


@pytest.mark.parametrize(
    ("ranges", "failed", "result"),
    [
        ([(A, 0x1000), (A + 0x2000, 0xFFF)], 1, EINVAL),
        ([(A, 0x1000), (A, 0x1000)], 1, EINVAL),
        ([(A + 0x5000, 0x1000), (A, 0x1000)], 0, EINVAL),
        ([(A, 0x1000), (A + 0x2000, 0)], 1, ENOMEM),
    ],
)
def test_ungrant_many_is_all_or_none(
    lib: Host, ext: Extended, ranges: list[tuple[int, int]], failed: int, result: int
) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x1000) == lib.grant(tid, A + 0x2000, 0x1000) == 0
    before = lib.table(tid)
    mark = lib.mark()
    assert ext.ungrant_many(tid, ranges) == (result, failed)
    assert lib.table(tid) == before
    assert invalidations(lib, mark) == []
    assert ext.ungrant_many(tid, [(A, 0x1000), (A + 0x2000, 0x1000)]) == (0, 999)


def test_batches_of_unknown_tids(lib: Host, ext: Extended) -> None:
    assert ext.grant_many(0x999, [(A, 1, RW, None)]) == (EINVAL, 999)
    assert ext.ungrant_many(0x999, [(A, 1)]) == (EINVAL, 999)
    assert lib.raw.ummu_grant_many(lib.allocate(), None, 3, None) == EINVAL


@pytest.mark.seed(77)
def test_random_batches_leave_what_single_calls_would(lib: Host, ext: Extended, seed: int) -> None:
    rng = random.Random(seed)
    lib.fake.block_bytes = 16 << 10
    tid = lib.allocate()
    oracle = Oracle()
    for _ in range(60):
        place = rng.choice([0, 1 << 21, 5 << 39])
        batch = [
            (place + 4096 * rng.randrange(64), 4096 * rng.randrange(1, 4), RW, rng.choice([None, 1, 2]))
            for _ in range(rng.randrange(1, 8))
        ]
        trial = Oracle()
        trial.ranges = {k: type(v)(v.size, v.perm, v.e_bit, list(v.tokens)) for k, v in oracle.ranges.items()}
        trial.starts = list(oracle.starts)
        results = [trial.grant(a, n, p, t, 0) for a, n, p, t in batch]
        good = next((i for i, one in enumerate(results) if one), None)
        assert ext.grant_many(tid, batch) == ((0, 999) if good is None else (EINVAL, good))
        oracle = trial if good is None else oracle
        oracle.check(lib, tid)
        if len(oracle.starts) > 20:
            names = [(a, oracle.ranges[a].size) for a in rng.sample(oracle.starts, 10)]
            assert ext.ungrant_many(tid, names) == (0, 999)
            for addr, size in names:
                oracle.ungrant(addr, size)
            oracle.check(lib, tid)


# -- look-up ----------------------------------------------------------------------------------------


def test_query(lib: Host, ext: Extended) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x1800, R, token=5) == 0
    assert lib.grant(tid, A + 0x2000, 0x1000, RW, e_bit=1) == 0
    assert lib.grant(tid, A + 0x3000, 0x1000, RW) == 0
    assert ext.query(tid, A, 0x1800, R, 5) == (0, ALLOWED, None)
    assert ext.query(tid, A, 0x1801, R, 5) == (0, NOT_GRANTED, A + 0x1800)
    assert ext.query(tid, A - 1, 2, R, 5) == (0, NOT_GRANTED, A - 1)
    assert ext.query(tid, A, 1, W, 5) == (0, WRONG_ACCESS, A)
    assert ext.query(tid, A, 1, RW, 5) == (0, WRONG_ACCESS, A)
    assert ext.query(tid, A, 1, R, 6) == (0, WRONG_TOKEN, A)
    assert ext.query(tid, A, 1, R, None) == (0, WRONG_TOKEN, A)
    assert ext.query(tid, A, 1, W, 6) == (0, WRONG_ACCESS, A)  # access before token
    assert ext.query(tid, A + 0x2800, 0x1000, RW) == (0, ALLOWED, None)  # over two ranges
    assert ext.query(tid, A + 0x2800, 0x1000, RW, e_bit=0) == (0, WRONG_EBIT, A + 0x2800)
    assert ext.query(tid, A + 0x3000, 0x1000, RW, 9, e_bit=0) == (0, ALLOWED, None)


@pytest.mark.parametrize(
    ("addr", "size"), [(A, 0), (1 << 48, 1), (A, 1 << 48), ((1 << 48) - 1, 2), (1 << 63, 1 << 63)]
)
def test_query_of_nonsense(lib: Host, ext: Extended, addr: int, size: int) -> None:
    assert ext.query(lib.allocate(), addr, size)[0] == EINVAL
    assert ext.query(0x999, A, 1)[0] == EINVAL


# -- change of token --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [h.TABLE, ENTRY])
def test_rotate(lib: Host, ext: Extended, mode: int) -> None:
    tid = lib.allocate(mode)
    assert lib.grant(tid, A, 0x3000, R, token=1) == 0
    mark = lib.mark()
    assert ext.rotate(tid, A, 0x3000, 1, 2) == 0
    assert invalidations(lib, mark) == ["VA", "VA"]  # the new one is known before the old one dies
    (only,) = lib.dump(tid, mode).ranges()
    assert (only.entry["TOKEN_VAL_0"], only.entry["TOKEN_VAL_1"], only.entry["PERMISSION"]) == (2, 2, R)
    assert ext.query(tid, A, 1, R, 1)[1] == WRONG_TOKEN
    assert ext.query(tid, A, 1, R, 2)[1] == ALLOWED
    chosen = Token(1, 0)
    assert ext.rotate(tid, A, 0x3000, 2, chosen) == 0
    assert ext.query(tid, A, 1, R, chosen.value)[1] == ALLOWED


def test_rotate_refuses(lib: Host, ext: Extended) -> None:
    tid = lib.allocate()
    assert lib.grant(tid, A, 0x1000, R, token=1) == 0
    assert lib.grant(tid, A + 0x2000, 0x1000) == 0
    before = lib.table(tid)
    assert ext.rotate(tid, A, 0x1000, 3, 2) == EINVAL
    assert ext.rotate(tid, A, 0xFFF, 1, 2) == EINVAL
    assert ext.rotate(tid, A, 0, 1, 2) == EINVAL
    assert ext.rotate(tid, A + 0x2000, 0x1000, 0, 2) == EINVAL  # granted without a token
    assert ext.rotate(tid, A, 0x1000, 1, Token(2, 0)) == EINVAL
    assert ext.rotate(0x999, A, 0x1000, 1, 2) == EINVAL
    lib.fail(h.RANDOM)
    assert ext.rotate(tid, A, 0x1000, 1, Token(1, 0)) == EINVAL
    assert lib.table(tid) == before
    assert lib.grant(tid, A, 0x1000, R, token=2) == 0
    assert ext.rotate(tid, A, 0x1000, 1, 3) == EINVAL  # two tokens already
