# SPDX-License-Identifier: GPL-2.0-or-later
"""Every register row of the layout file: reset value, mask, protection, access sizes (case V16)."""

from __future__ import annotations

import random

import pytest
from core_helper import CTRL_PAGES, EVENTQ_EN, MAPT_EN, SOAK, UMMU_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.spec import Register, load

DEVICES = ("ummu,id=ummu0",)
SPEC = load()
ALL = list(SPEC.registers.values())
ENABLE = {"UMMU_EN": UMMU_EN, "EVENTQ_EN": EVENTQ_EN, "MAPT_EN": MAPT_EN}
#: What this device offers, where the layout file leaves the choice or gives another device's value.
OURS = {"IIDR": 0x100, "AIDR": 0, "CAP2": 0x1B9EC, "CAP4": 0x0000FF08}
READ_ONLY = ("ro", "ro, toggle")
#: Registers in which a write does more than store; they have tests of their own.
HOOKED = {"CTRL3", "GBPA", "GBPA_MTM_CFG", "USER_CONFIG2", "UMMU_USER_CONFIG2", "RELEASE_UM_QUEUE"}
BANK = SPEC.banks["MCMDQ"]
QUEUES = 8


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    return Core(machine)


def size_of(register: Register) -> int:
    return register.width // 8


def read_only(register: Register) -> bool:
    return register.access in READ_ONLY


def names(registers: list[Register]) -> list[str]:
    return [r.name for r in registers]


def test_reset_values(core: Core) -> None:
    for register in ALL:
        expected = OURS.get(register.name, register.reset)
        assert expected is not None, register.name
        assert core.regs.read(register.name) == expected, register.name


def test_introspection_shows_the_same_values(core: Core) -> None:
    image = core.image()
    for register in ALL:
        assert image[register.name.removeprefix("UMMU_")] == core.regs.read(register.name), register.name


@pytest.mark.parametrize("register", ALL, ids=names(ALL))
def test_write_mask(core: Core, register: Register) -> None:
    before = core.regs.read(register.name)
    ones = (1 << register.width) - 1
    core.regs.write(register.name, ones)
    if read_only(register):
        assert core.regs.read(register.name) == before
        assert core.qom("guest-errors") == 1
        return
    if register.name in HOOKED:
        return
    assert core.regs.read(register.name) == register.mask
    core.regs.write(register.name, 0)
    assert core.regs.read(register.name) == 0


@pytest.mark.parametrize(
    "name, flag", [("CTRL3", "UPDATE_FLG"), ("GBPA", "UPDATE"), ("GBPA_MTM_CFG", "UPDATE")]
)
def test_update_handshake(core: Core, name: str, flag: str) -> None:
    register = SPEC.reg(name)
    bit = next(f for f in register.fields if f.name == flag).mask
    value = register.mask & ~bit
    core.regs.write(name, value)
    assert core.regs.read(name) == register.reset, "taken over without the update flag"
    core.regs.write(name, value | bit)
    assert core.regs.read(name) == value, "the flag must clear itself"
    core.regs.write(name, bit)
    assert core.regs.read(name) == 0


def test_memory_initialisation_ends_at_once(core: Core) -> None:
    name = next(n for n in SPEC.registers if n.endswith("USER_CONFIG2"))
    core.regs.write(name, 0x1F)
    fields = core.regs.fields(name)
    assert fields["MCMDQ_MEM_INIT_EN"] == 1
    assert fields["MCMDQ_MEM_INITING"] == 0 and fields["TBU_L2_MEM_INITING"] == 0


def test_release_clears_itself(core: Core) -> None:
    core.regs.write("RELEASE_UM_QUEUE_ID", 3)
    core.regs.write("RELEASE_UM_QUEUE", 1)
    assert core.regs.read("RELEASE_UM_QUEUE") == 0
    assert core.regs.read("RELEASE_UM_QUEUE_ID") == 3


@pytest.mark.parametrize("value", [0, UMMU_EN, EVENTQ_EN, MAPT_EN, UMMU_EN | EVENTQ_EN | MAPT_EN, 0x1C, 0x3F])
def test_ctrl0_is_acknowledged_in_the_write(core: Core, value: int) -> None:
    core.regs.write("CTRL0", value)
    assert core.regs.read("CTRL0_ACK") == value
    core.regs.write("CTRL0", 0)
    assert core.regs.read("CTRL0_ACK") == 0


GUARDED = [r for r in ALL if r.guard != "NONE"]


@pytest.mark.parametrize("register", GUARDED, ids=names(GUARDED))
def test_protected_while_enabled(core: Core, register: Register) -> None:
    size = size_of(register)
    pattern = register.mask & 0x5555555555555555
    core.regs.write(register.name, pattern)
    for other, bit in ENABLE.items():
        core.regs.write("CTRL0", bit)
        errors = core.qom("guest-errors")
        core.regs.write(register.name, 0)
        if other == register.guard:
            assert core.regs.read(register.name) == pattern, f"written while {other} = 1"
            assert core.qom("guest-errors") == errors + 1
            for half in range(0, size, 4):
                core.write(register.offset + half, 0xFFFFFFFF)
            assert core.regs.read(register.name) == pattern
        else:
            assert core.regs.read(register.name) == 0, f"{other} must not protect it"
            core.regs.write(register.name, pattern)
    core.regs.write("CTRL0", 0)
    core.regs.write(register.name, 0)
    assert core.regs.read(register.name) == 0


WIDE = [r for r in ALL if r.width == 64]


@pytest.mark.parametrize("register", WIDE, ids=names(WIDE))
@pytest.mark.parametrize("order", [(0, 4), (4, 0)], ids=["low first", "high first"])
def test_64_bit_register_by_halves(core: Core, register: Register, order: tuple[int, int]) -> None:
    value = 0x80F123456789ABCD
    for half in order:
        core.write(register.offset + half, value >> (8 * half))
    by_halves = core.regs.read(register.name)
    core.regs.write(register.name, 0)
    core.regs.write(register.name, value)
    assert core.regs.read(register.name) == by_halves == value & register.mask
    assert core.read(register.offset) == by_halves & 0xFFFFFFFF
    assert core.read(register.offset + 4) == by_halves >> 32


def test_one_half_leaves_the_other(core: Core) -> None:
    for register in WIDE:
        core.regs.write(register.name, register.mask)
        core.write(register.offset + 4, 0)
        assert core.regs.read(register.name) == register.mask & 0xFFFFFFFF, register.name


# ---- V16: everything that is not a register --------------------------------------------------------------------


def legal(offset: int, size: int) -> bool:
    """Is this access one that a register (or half of one) answers?"""
    if BANK.base <= offset < BANK.base + QUEUES * BANK.stride:
        local = (offset - BANK.base) % BANK.stride
        return (local, size) in ((0, 8), (0, 4), (4, 4), (8, 4), (12, 4))
    for r in ALL:
        if r.offset <= offset < r.offset + size_of(r):
            return (size == size_of(r) and offset == r.offset) or (size == 4 and (offset - r.offset) % 4 == 0)
    return False


def test_v16_reads_at_every_offset_and_width(core: Core) -> None:
    for size in (1, 2, 4, 8):
        offsets = list(range(0, 0x5010))
        values = core.machine.qtest.read_many([(core.base + o, size) for o in offsets])
        wrong = 0
        for offset, value in zip(offsets, values, strict=True):
            if not legal(offset, size):
                wrong += 1
                assert value == 0, f"{size} bytes at {offset:#x} read {value:#x}"
        assert core.qom("guest-errors") == wrong
        core.machine.reset()


def test_v16_bad_writes_change_nothing(core: Core) -> None:
    before = core.image()
    bad = [(o, s) for o in range(0, 0x5010) for s in (1, 2, 4, 8) if not legal(o, s)]
    core.machine.qtest.write_many([(core.base + o, (1 << (8 * s)) - 1, s) for o, s in bad])
    assert core.image() == before
    assert core.qom("queues") == {}
    assert core.qom("guest-errors") == len(bad)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_v16_ends_of_the_frame(core: Core, size: int) -> None:
    end = core.function.bar_sizes[0]
    before = core.image()
    places = [0x5000, 0xFFFC, 0x1FFFF, 0x11000, end - size, end - 1 if size == 1 else end - size]
    for offset in places:
        core.write(offset, (1 << (8 * size)) - 1, size)
        assert core.read(offset, size) == 0
    assert core.image() == before
    assert core.qom("queues") == {}
    assert core.qom("guest-errors") == 2 * len(places)


@pytest.mark.parametrize("page_sel, stride", [(1, 0x1000), (0, 0x10000)])
def test_v16_control_pages(core: Core, page_sel: int, stride: int) -> None:
    core.regs.write("UMCMD_PAGE_SEL", page_sel)
    last = 255
    for qid in (0, 1, last):
        page = CTRL_PAGES + qid * stride
        for register in (0, 4, 8, 12):
            core.write(page + register, 0x1230 + register + qid % 16, 2)
    for qid in (0, 1, last):
        page = CTRL_PAGES + qid * stride
        for register in (0, 4, 8, 12):
            expected = 0x1230 + register + qid % 16
            assert core.read(page + register, 2) == expected, (qid, register)
            assert core.read(page + register, 4) == expected
    errors = core.qom("guest-errors")
    before = core.qom("queues")
    bad = [(0, 1), (0, 8), (1, 2), (2, 2), (2, 4), (0x10, 2), (0x10, 4), (stride - 4, 4), (stride - 2, 2)]
    for offset, size in bad:
        core.write(CTRL_PAGES + stride + offset, 0xFF, size)
        assert core.read(CTRL_PAGES + stride + offset, size) == 0
    beyond = CTRL_PAGES + 256 * stride
    core.write(beyond, 1, 2) if beyond < core.function.bar_sizes[0] else None
    assert core.qom("queues") == before
    assert core.qom("guest-errors") >= errors + 2 * len(bad)


def test_v16_random_accesses_against_a_model(core: Core) -> None:
    """Good and bad accesses in random order; the model is the layout file and nothing else."""
    rng = random.Random(16)
    # A doorbell address of 0 keeps interrupts away; everything else may take any value.
    plain = [
        r
        for r in ALL
        if not r.name.endswith("USI_ADDR") and r.name not in HOOKED and "toggle" not in r.access
    ]
    model = {r.name: core.regs.read(r.name) for r in ALL}
    masks = {r.name: 0 if read_only(r) else r.mask for r in ALL}
    starts = [(r, half) for r in plain for half in range(0, size_of(r), 4)]
    writes: list[tuple[int, int, int]] = []
    for _ in range(1_000_000 if SOAK else 20_000):
        register, half = rng.choice(starts)
        size = rng.choice((1, 2, 4, 4, 8))
        offset = register.offset + half + (rng.randrange(1, 4) if rng.random() < 0.1 else 0)
        value = rng.getrandbits(8 * size)
        if register.name == "CTRL0" and rng.random() < 0.5:
            value = 0
        writes.append((core.base + offset, value, size))
        if not legal(offset, size):
            continue
        apply(model, masks, register, offset, value, size)
    core.machine.qtest.write_many(writes)
    for register in plain:
        assert core.regs.read(register.name) == model[register.name], register.name


def apply(model: dict[str, int], masks: dict[str, int], register: Register, offset: int, value: int,
          size: int) -> None:  # fmt: skip
    """One legal write, as the layout file describes it."""
    if register.guard != "NONE" and model["CTRL0"] & ENABLE[register.guard]:
        return
    shift = 8 * (offset - register.offset)
    part = ((1 << (8 * size)) - 1) << shift
    merged = (model[register.name] & ~part) | ((value << shift) & part)
    if masks[register.name]:
        model[register.name] = merged & masks[register.name]
    if register.name == "CTRL0":
        model["CTRL0_ACK"] = model["CTRL0"]


# ---- the MCMDQ bank ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [0, 1, QUEUES - 1])
def test_mcmdq_registers(core: Core, queue: int) -> None:
    at = BANK.base + queue * BANK.stride
    ones = 0xFFFFFFFFFFFFFFFF
    core.regs.write("MCMDQ_BASE", ones, at)
    assert core.regs.read("MCMDQ_BASE", at) == SPEC.reg("MCMDQ_BASE").mask
    core.regs.write("MCMDQ_CI", 0xFFFFFFFF, at)
    assert core.regs.read("MCMDQ_CI", at) == SPEC.reg("MCMDQ_CI").mask & ~(1 << 31), "EN_RESP is the device's"
    core.regs.write("MCMDQ_CI", 0, at)
    core.regs.write("MCMDQ_PI", 0x7FFFFFFF, at)
    assert core.regs.read("MCMDQ_PI", at) == SPEC.reg("MCMDQ_PI").mask & ~(1 << 31)


def test_mcmdq_protected_while_enabled(core: Core) -> None:
    at = BANK.base
    core.regs.write("MCMDQ_BASE", core.mcmdq.ring | 6, at)
    core.regs.write("MCMDQ_PI", 1 << 31, at)
    assert core.mcmdq.consumer()["EN_RESP"] == 1
    core.regs.write("MCMDQ_BASE", 0, at)
    core.write(at + 4, 0xFFFF)
    core.regs.write("MCMDQ_CI", 0x3F, at)
    assert core.regs.read("MCMDQ_BASE", at) == core.mcmdq.ring | 6
    assert core.mcmdq.consumer()["RD_IDX_WRAP"] == 0
    assert core.qom("guest-errors") == 3
    core.regs.write("MCMDQ_PI", 0, at)
    assert core.mcmdq.consumer()["EN_RESP"] == 0


def test_mcmdq_beyond_the_last_is_a_hole(core: Core) -> None:
    at = BANK.base + QUEUES * BANK.stride
    core.regs.write("MCMDQ_PI", 1 << 31, at)
    assert core.regs.read("MCMDQ_CI", at) == 0
    assert core.qom("guest-errors") == 2
