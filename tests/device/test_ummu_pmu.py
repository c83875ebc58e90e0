# SPDX-License-Identifier: GPL-2.0-or-later
"""Performance counters: registers, counting, filters, overflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cache_lab import CacheLab
from core_helper import UMMU_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.qmp import QmpCommandError
from ummulab.spec import load

DEVICES = ("ummu,id=ummu0",)
SPEC = load()
PMU = 0x10000
GLOBAL: list[dict[str, Any]] = SPEC.pmu["registers"]
PER_COUNTER: list[dict[str, Any]] = SPEC.pmu["per_counter"]["registers"]
EVENTS: dict[str, int] = SPEC.pmu["event_codes"]
SENT, KV = EVENTS["SWIF_CMD_SEND_NUM"], EVENTS["UBIF_KV_CACHE_HIT_RATE"]
HOLE = 0x3F800000000
VA = 0x1000_0000
COM_CTRL, OVF_STS, OVF_MSK, COND_H, MSK_H, CNT0, CNT1 = 0x00, 0x08, 0x0C, 0x14, 0x1C, 0x20, 0x28


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    core = Core(machine)
    core.start()
    return core


def counter(n: int, register: int) -> int:
    return PMU + 0x40 * n + register


def watch(core: Core, n: int, event: int) -> None:
    core.write(counter(n, COM_CTRL), 1 << 16 | event)


def value(core: Core, n: int, register: int = CNT0) -> int:
    return core.read(counter(n, register), 8)


def mask(row: dict[str, Any]) -> int:
    return sum(((1 << f["width"]) - 1) << f["lsb"] for f in row["fields"])


@pytest.mark.parametrize("row", GLOBAL, ids=[r["name"] for r in GLOBAL])
def test_global_register(core: Core, row: dict[str, Any]) -> None:
    size = row["width"] // 8
    core.write(PMU + row["offset"], (1 << row["width"]) - 1, size)
    expected = mask(row) & ~0x10 if row["name"] == "GLB_CTRL" else mask(row)
    assert core.read(PMU + row["offset"], size) == expected
    if size == 8:
        core.write(PMU + row["offset"] + 4, 0)
        assert core.read(PMU + row["offset"], 8) == expected & 0xFFFFFFFF


@pytest.mark.parametrize("n", [1, 4, 8])
def test_counter_registers(core: Core, n: int) -> None:
    for row in PER_COUNTER:
        size = row["width"] // 8
        core.write(counter(n, row["offset"]), (1 << row["width"]) - 1, size)
        got = core.read(counter(n, row["offset"]), size)
        if row["name"] == "COM_CTRL":
            assert got == mask(row) & ~(1 << 24), "EVENT_CLR reads 0"
        elif row["name"] == "OVF_INT_STS":
            assert got == 0, "software can only clear overflow bits"
        else:
            assert got == mask(row), row["name"]


@pytest.mark.parametrize("offset, size", [(0x04, 4), (0x28, 4), (0x44, 4), (0x240, 4), (0x250, 8), (0xFFC, 4), (0, 2),
                                          (0, 8), (0x60, 2), (0x61, 4)])  # fmt: skip
def test_holes_and_bad_sizes(core: Core, offset: int, size: int) -> None:
    core.write(PMU + offset, 0xFF, size)
    assert core.read(PMU + offset, size) == 0
    assert core.qom("guest-errors") == 2


def test_counts_only_when_enabled(core: Core) -> None:
    core.cmd("CMD_SYNC")
    watch(core, 1, SENT)
    core.cmd("CMD_SYNC")
    assert value(core, 1) == 0, "GLB_CTRL.ENABLE is 0"
    core.write(PMU, 1)
    for _ in range(5):
        core.cmd("CMD_SYNC")
    assert value(core, 1) == 5
    core.write(counter(1, COM_CTRL), SENT)
    core.cmd("CMD_SYNC")
    assert value(core, 1) == 5, "EVENT_EN is 0"


def test_clear_one_and_all(core: Core) -> None:
    core.write(PMU, 1)
    for n in (1, 2):
        watch(core, n, SENT)
    core.cmd("CMD_SYNC")
    core.write(counter(1, COM_CTRL), 1 << 24 | 1 << 16 | SENT)
    assert (value(core, 1), value(core, 2)) == (0, 1)
    core.cmd("CMD_SYNC")
    assert (value(core, 1), value(core, 2)) == (1, 2)
    core.write(PMU, 0x11)
    assert (value(core, 1), value(core, 2)) == (0, 0)
    assert core.read(PMU) == 1


@pytest.mark.parametrize("masked", [False, True])
def test_overflow_message(core: Core, masked: bool) -> None:
    core.write(PMU + 0x08, core.usi + 0x80, 8)
    core.write(PMU + 0x10, 0x99)
    core.write(PMU + 0x18, 1)
    core.write(counter(3, OVF_MSK), int(masked))
    core.write(counter(3, CNT0), 0xFFFFFFFFFFFFFFFF, 8)
    watch(core, 3, SENT)
    core.write(PMU, 1)
    core.cmd("CMD_SYNC")
    assert value(core, 3) == 0 and core.read(counter(3, OVF_STS)) == 1
    assert core.arena.read_word(core.usi + 0x80, 4) == (0 if masked else 0x99)
    core.write(counter(3, OVF_STS), 0)
    assert core.read(counter(3, OVF_STS)) == 0


@pytest.mark.parametrize("address", [HOLE, None], ids=["hole", "own register"])
def test_overflow_message_that_cannot_be_sent(core: Core, address: int | None) -> None:
    core.write(PMU + 0x08, address or core.base + 0x30, 8)
    core.write(PMU + 0x10, 0xFFFFFFFF)
    core.write(PMU + 0x18, 1)
    core.write(counter(1, CNT0), 0xFFFFFFFFFFFFFFFF, 8)
    watch(core, 1, SENT)
    core.write(PMU, 1)
    core.cmd("CMD_SYNC")
    assert core.read(counter(1, OVF_STS)) == 1
    assert core.regs.read("CTRL0") == 0x22


def test_probe_counts_nothing(core: Core) -> None:
    """A translation without side effects must not move any counter."""
    core.write(PMU, 1)
    watch(core, 1, KV)
    core.create(0x77, 1)
    core.regs.write("CTRL0", core.regs.read("CTRL0") | UMMU_EN)
    before = core.qom("counters")
    core.qom_set("translate-request", "eid=0x77,tid=1,uba=0x1000")
    assert core.qom("translate-result")["status"] == "fault"
    assert value(core, 1) == value(core, 1, CNT1) == 0
    assert core.qom("counters") == before


# ---- introspection ---------------------------------------------------------------------------------------------------

BAD_REQUESTS = ["eid", "eid=x", "eid=0x1ffffffffffffffff", "tid=0x100000", "access=execute", "uba=-1", "nonsense=1",
                "e-bit=2", "len=", "token=0x100000000"]  # fmt: skip


@pytest.mark.parametrize("text", BAD_REQUESTS)
def test_bad_translate_request_is_one_clear_error(core: Core, text: str) -> None:
    from ummulab.qtest.errors import QmpCommandError

    with pytest.raises(QmpCommandError):
        core.qom_set("translate-request", text)
    assert core.qom("translate-result")["status"] == "none"


def test_state_of_a_tid(core: Core) -> None:
    core.regs.write("CTRL0", 0)
    tect, tct = core.arena.take(256), core.arena.take(4096)
    core.regs.write("TECT_BASE", tect)
    core.regs.write("TECT_BASE_CFG", 2)
    tecte = SPEC.structures["TECTE"].pack(V=1, ST_MODE=5, TCT_NUM=6, TCT_PTR=tct >> 6)
    tcte = SPEC.structures["TCTE"].pack(V=1, AA64=1, GPAS=5, SZ=16, ASID=0x1234)
    core.arena.write(tect + 64, tecte)
    core.arena.write(tct + 64 * 9, tcte)
    core.qom_set("query-tag", 1)
    core.qom_set("query-tid", 9)
    before = core.qom("counters")
    state = core.qom("tid-state")
    assert state["tecte"]["refused"] == "" and state["tcte"]["refused"] == ""
    words = [state["tcte"][f"word{n}"] for n in range(8)]
    assert SPEC.structures["TCTE"].join(words) == tcte
    assert state["entity"] | {"tct": 0} == {
        "st-mode": 5, "stage1": 1, "stage2": 0, "el2": 0, "vmid": 0, "tct": 0, "tct-log2": 6, "mapt-en": 0,
        "may-stall": 1,
    }  # fmt: skip
    context = state["context"]
    assert (context["asid"], context["matt-input-bits"], context["matt-granule"]) == (0x1234, 48, 4096)
    assert (context["e-bit"], context["stalls"], context["mapt-en"]) == (0, 0, 0)
    core.qom_set("query-tid", 64)
    refused = core.qom("tid-state")
    assert (
        refused["tcte"]["refused"] == "EVT_BAD_TOKENID" and "context" not in refused and "entity" in refused
    )
    core.qom_set("query-tag", 4)
    assert core.qom("tid-state")["tecte"]["refused"] == "EVT_BAD_DSTEID"
    assert core.qom("counters") == before


# ---- the model's own events, and the benchmark of look-ups -----------------------------------------------------------

OWN = {name: code for name, code in EVENTS.items() if name.startswith("MODEL_")}


@pytest.fixture
def busy(machine: QtestMachine) -> CacheLab:
    lab = CacheLab(machine)
    lab.entity(1)
    lab.context(1, 1, mapt=lab.mapt)
    lab.matt.map(VA, lab.page(), 0x1000)
    lab.mapt.grant(VA, 0x1000, 7)
    return lab


def count_of(core: Core, code: int, work: Callable[[], None], tag: int | None = None) -> int:
    """What counter 1 makes of a piece of work, of one tag if one is given."""
    core.write(PMU, 1 << 4)
    if tag is not None:
        core.write(counter(1, COND_H), tag)
        core.write(counter(1, MSK_H), 0xFFFF)
    watch(core, 1, code)
    core.write(PMU, 1)
    work()
    core.write(PMU, 0)
    return value(core, 1)


def test_own_events_count_work(busy: CacheLab) -> None:
    def ask() -> None:
        assert busy.ask(VA, tag=1, length=100, access="atomic")

    def invalidate() -> None:
        for name in ("CMD_CFGI_TCT", "CMD_TLBI_OS_TID", "CMD_PLBI_OS_EID"):
            busy.command(name)

    core = busy.core
    assert count_of(core, OWN["MODEL_WALK_STEPS_S1"], ask) == 4
    assert count_of(core, OWN["MODEL_WALK_STEPS_S1"], ask) == 0, "a hit walks nothing"
    invalidate()
    assert count_of(core, OWN["MODEL_CFGI_NUM"], invalidate) == 1
    assert count_of(core, OWN["MODEL_TLBI_NUM"], invalidate) == 1
    assert count_of(core, OWN["MODEL_PLBI_NUM"], invalidate) == 1
    assert count_of(core, OWN["MODEL_WALK_STEPS_S2"], ask) == 0
    busy.command("CMD_PLBI_OS_EID", TECTE_TAG=1)
    assert count_of(core, OWN["MODEL_WALK_STEPS_MAPT"], ask) == 4
    assert count_of(core, OWN["MODEL_BYTES_READ"], ask) == 100
    assert count_of(core, OWN["MODEL_BYTES_WRITTEN"], ask, tag=1) == 100
    assert count_of(core, OWN["MODEL_BYTES_WRITTEN"], ask, tag=2) == 0


def test_own_events_count_faults_by_kind(busy: CacheLab) -> None:
    def refuse() -> None:
        for uba, tag in ((VA + 0x1000, 1), (VA + 0x1000, 1), (VA, 2)):
            assert not busy.ask(uba, tag=tag)

    fault = OWN["MODEL_FAULT_NUM"]
    assert count_of(busy.core, fault + 0x13, refuse) == 2
    assert count_of(busy.core, fault + 0x04, refuse) == 1
    assert count_of(busy.core, fault + 0x0A, refuse) == 0
    assert count_of(busy.core, fault + 0x13, refuse, tag=2) == 0


def test_benchmark_makes_real_requests(busy: CacheLab) -> None:
    request = f"eid=1,tid=1,uba={VA:#x},len=8,e-bit=1"
    busy.core.qom_set("benchmark-request", f"{request},count=1000")
    result = busy.core.qom("benchmark-result")
    assert (result["lookups"], result["ok"]) == (1000, 1000) and result["ns"] > 0
    assert (busy.count("requests"), busy.count("plb-hits"), busy.count("plb-misses")) == (1000, 999, 1)
    # Every second EID, and every address but one, are refused.
    busy.core.qom_set("benchmark-request", f"{request},count=10,eids=2")
    assert busy.core.qom("benchmark-result")["ok"] == 5
    busy.core.qom_set("benchmark-request", f"{request},count=64,pages=4,stride=4096,access=write")
    assert 0 < busy.core.qom("benchmark-result")["ok"] < 64
    assert busy.core.qom("benchmark-result") == busy.core.qom("benchmark-result")


@pytest.mark.parametrize("text", [
    "count=10000001", "count=-1", "count=x", "eids=4294967296", "tids=1048577", "pages=0x100000000", "stride=-4096",
    "unknown=1", "count=1,access=fetch", "=", "tid=0x100000",
])  # fmt: skip
def test_bad_benchmark_request_is_one_clear_error(core: Core, text: str) -> None:
    with pytest.raises(QmpCommandError):
        core.qom_set("benchmark-request", text)
    assert core.qom("benchmark-result") == {"lookups": 0, "ok": 0, "ns": 0}


@pytest.mark.parametrize(
    "text",
    ["count=0", "count=1,eids=0", "count=1,tids=0,pages=0,stride=0", "count=1,tids=1048576,tid=0xfffff"],
)
def test_benchmark_of_nothing_does_no_harm(core: Core, text: str) -> None:
    core.qom_set("benchmark-request", text)
    assert core.qom("benchmark-result")["lookups"] <= 1
