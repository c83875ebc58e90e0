# SPDX-License-Identifier: GPL-2.0-or-later
"""Random sequences of calls: every result as the oracle says, every table as the grants say (V02)."""

from __future__ import annotations

import random

import pytest
from libummu_host import host as h
from libummu_host.host import ENTRY, SANITIZE, TABLE, Host
from libummu_host.oracle import Oracle

#: Calls of one sequence: the full length where it is quick, less where a thread plays the device.
STEPS = {("ioctl", TABLE): 100_000}
STEPS_ELSE = 8_000
STEPS_QUEUE = 800
CHECK_EVERY = 1_000
CAPS = {
    "ioctl": h.KCMD | h.EXPAN,
    "ioctl-pplbi": h.KCMD | h.EXPAN | h.PPLBI,
    "queue": h.EXPAN,
    "queue-free-bit": h.EXPAN | h.FREE_BIT,
    "queue-twice": h.EXPAN | h.DOUBLE,
}


def address(rng: random.Random) -> int:
    """A few crowded places, so that ranges meet: around level boundaries and at both ends."""
    place = rng.choice([0, 1 << 21, 3 << 30, 5 << 39, 0x7F12_3456_7000, (1 << 48) - (64 << 12)])
    addr = place + rng.randrange(-32, 64) * rng.choice([4096, 4096, 1 << 21])
    return addr + (rng.randrange(4096) if rng.random() < 0.03 else 0)


def size(rng: random.Random) -> int:
    unit = rng.choice([1, 4096, 4096, 4096, 1 << 21, 1 << 30])
    return rng.randrange(0, 6) * unit + rng.choice([0, 0, 1, 4095])


def step(rng: random.Random, host: Host, tid: int, oracle: Oracle) -> None:
    known = rng.choice(oracle.starts) if oracle.starts and rng.random() < 0.5 else None
    addr = known if known is not None else address(rng) % (1 << 64)
    length = oracle.ranges[known].size if known is not None and rng.random() < 0.9 else size(rng)
    kind = rng.random()
    # More is closed than opened once there are many ranges: the table breathes.
    if kind < (0.3 if len(oracle.starts) > 200 else 0.6):
        perm = rng.choice([1, 2, 3, 3, 5, 6, 7, 0, 4])
        same = oracle.ranges.get(addr)
        if same and rng.random() < 0.7:
            perm = same.perm
        token = rng.choice([None, 0, 1, 2, 0xFFFFFFFF])
        e_bit = same.e_bit if same and rng.random() < 0.8 else rng.choice([0, 0, 0, 1, 2])
        assert host.grant(tid, addr, length, perm, token, e_bit) == oracle.grant(
            addr, length, perm, token, e_bit
        )
    elif kind < 0.8:
        assert host.ungrant(tid, addr, length) == oracle.ungrant(addr, length)
    else:
        token = rng.choice([0, 1, 2, 0xFFFFFFFF])
        assert host.by_token(tid, addr, length, token) == oracle.by_token(addr, length, token)


@pytest.mark.parametrize("mode", [TABLE, ENTRY], ids=["table", "entry"])
@pytest.mark.parametrize("caps", list(CAPS))
@pytest.mark.seed(20261201)
def test_v02_random_sequence(lib: Host, seed: int, caps: str, mode: int) -> None:
    rng = random.Random(f"{seed} {caps} {mode}")
    lib.fake.hw_cap = CAPS[caps]
    lib.fake.block_bytes = rng.choice([16, 64, 256]) << 10
    queues = not CAPS[caps] & h.KCMD
    if queues:
        lib.raw.fake_device_start()
    try:
        tid = lib.allocate(mode)
        oracle = Oracle(mode)
        steps = STEPS_QUEUE if queues else STEPS.get((caps, mode), STEPS_ELSE)
        steps = steps // 20 if SANITIZE else steps
        for done in range(steps):
            step(rng, lib, tid, oracle)
            if done % CHECK_EVERY == 0 or done == steps - 1:
                oracle.check(lib, tid)
        for addr in list(oracle.starts):
            length = oracle.ranges[addr].size
            assert lib.ungrant(tid, addr, length) == oracle.ungrant(addr, length) == 0
        oracle.check(lib, tid)
        assert lib.blocks(tid) == [0], "an emptied table keeps only its root's block"
        assert not any(lib.table(tid, mode)), "an emptied table is all zero"
        assert lib.free(tid) == 0
    finally:
        if queues:
            lib.raw.fake_device_stop()
    assert lib.raw.fake_tids_alive() == 0
