# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver's probe, enable and disable sequence, access by access (hardware text, section 3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_helper import EVENTQ_EN, MAPT_EN, UMMU_EN, Core
from ummulab.build.arch import guest_arch
from ummulab.qtest.arch import arch_by_name
from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.process import find_qemu, firmware_options
from ummulab.spec import load

DEVICES = ("ummu,id=ummu0",)
SPEC = load()
CTRL1_OF_DRIVER = 0x9D75
VENDOR_CAP = 0x09


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    return Core(machine)


def test_firmware_node_capability(core: Core) -> None:
    at = core.function.capability(VENDOR_CAP)
    head = core.function.read_config(at)
    assert head >> 16 & 0xFF == 0x18 and head >> 24 == 0x55, "length and type"
    assert core.function.read_config(at + 4) == 1, "smallest TID"
    assert core.function.read_config(at + 8) == 0xFFFFE, "largest TID"
    assert core.function.read_config(at + 12, 2) == 0xCC08, "vendor id"
    assert core.function.read_config(at + 16) == 256, "user queues"


def test_capabilities_let_the_driver_probe(core: Core) -> None:
    fields = {n: core.regs.fields(n) for n in ("CAP0", "CAP1", "CAP2", "CAP3", "CAP4", "CAP5", "IIDR")}
    assert fields["CAP2"]["TRANS_FORM"] in (2, 3)
    assert fields["CAP2"]["S1_TRANS"] or fields["CAP2"]["S2_TRANS"]
    assert fields["CAP2"]["TLB_BROADCAST"] == 0, "guest TLBI instructions cannot be seen"
    page_sel = core.regs.read("UMCMD_PAGE_SEL")
    core.regs.write("UMCMD_PAGE_SEL", page_sel | 1)
    assert core.regs.read("UMCMD_PAGE_SEL") == 1
    assert fields["CAP1"]["MCMDQ_SUPPORT"] == 1 and fields["CAP1"]["EVENTQ_SUPPORT"] == 1
    assert fields["CAP3"]["COHERENT_ACCESS"] == 1 and fields["CAP3"]["USI_SUPPORT"] == 1
    assert fields["CAP4"]["UCMDQ_SIZE"] >= 12 and fields["CAP4"]["UCPLQ_SIZE"] >= 14
    assert fields["CAP4"]["UIEQ_SUPPORT"] == 0
    assert fields["CAP5"]["MAPT_SUPPORT"] == 1
    assert fields["IIDR"]["PROD_ID"] == 1, "second generation: no work-arounds"


def enable_as_the_driver(core: Core) -> None:
    """Section 3.2, steps 1 to 12; every poll must succeed at the first look."""
    regs = core.regs
    if regs.fields("CTRL0")["UMMU_EN"]:
        regs.write("GBPA", 1 << 31 | 1 << 15)
        assert regs.read("GBPA") == 1 << 15
    regs.write("CTRL0", 0)
    assert regs.read("CTRL0_ACK") == 0
    regs.write("CTRL1", CTRL1_OF_DRIVER)
    tect = core.arena.take(64 << 4)
    regs.write("TECT_BASE", tect | 1 << 63)
    regs.write("TECT_BASE_CFG", 4)
    core.machine.qtest.write_many(core.kv.enable_writes(regs))
    config2 = next(n for n in SPEC.registers if n.endswith("USER_CONFIG2"))
    regs.write(config2, regs.read(config2) | 8)
    assert not regs.read(config2) & 0x10
    regs.write(config2, regs.read(config2) & ~8)
    at = core.mcmdq.at
    if regs.fields("MCMDQ_PI", at)["EN"]:
        regs.write("MCMDQ_PI", regs.read("MCMDQ_PI", at) & ~(1 << 31), at)
        assert core.mcmdq.consumer()["EN_RESP"] == 0
    core.machine.qtest.write_many(core.mcmdq.enable_writes())
    core.mcmdq.pi = 0
    assert core.mcmdq.consumer() == {"RD_IDX_WRAP": 0, "ERR": 0, "ERR_REASON": 0, "EN_RESP": 1}
    core.machine.qtest.write_many(core.eventq.enable_writes())
    core.eventq.ci = 0
    regs.write("CTRL0", EVENTQ_EN)
    assert regs.read("CTRL0_ACK") == EVENTQ_EN
    regs.write("MAPT_CMDQ_CTXT_BADDR", core.arena.take(64 << 8) | 8)
    regs.write("MAPT_CMDQ_CTXT_MATTR", 0)
    regs.write("CTRL0", EVENTQ_EN | MAPT_EN)
    assert regs.read("CTRL0_ACK") == EVENTQ_EN | MAPT_EN
    regs.write("GLB_INT_EN", 0)
    for name, data in (("EVENT_QUE", 0xE0), ("GLB_ERR_INT", 0xE1)):
        regs.write(f"{name}_USI_ADDR", core.usi)
        regs.write(f"{name}_USI_DATA", data)
        regs.write(f"{name}_USI_ATTR", 1)
    regs.write("GLB_INT_EN", 3)
    for command in ("CMD_CFGI_TECT_RANGE", "CMD_TLBI_HYP_ALL", "CMD_TLBI_NS_OS_ALL", "CMD_PLBI_OS_EID"):
        core.put(command, **({"RANGE": 31} if "RANGE" in command else {}))
        index = core.put("CMD_SYNC", CM=1, MSIADDR=core.mcmdq.slot(core.mcmdq.pi) >> 2)
        core.mcmdq.ring_bell()
        assert core.arena.read_word(core.mcmdq.slot(index), 4) == 0, (
            f"{command}: the SYNC entry must turn to 0"
        )
    assert core.regs.fields("CTRL0")["UMMU_EN"] == 0, "all this runs while the UMMU is off"
    regs.write("CTRL0", EVENTQ_EN | MAPT_EN | UMMU_EN)
    assert regs.read("CTRL0_ACK") == EVENTQ_EN | MAPT_EN | UMMU_EN


def test_enable_sequence(core: Core) -> None:
    enable_as_the_driver(core)
    assert core.qom("guest-errors") == 0
    assert core.pending_errors() == 0
    assert core.events() == []


def test_disable_clears_three_units_but_not_the_queues(core: Core) -> None:
    enable_as_the_driver(core)
    core.regs.write("CTRL0", 0)
    assert core.regs.read("CTRL0_ACK") == 0
    assert core.mcmdq.consumer()["EN_RESP"] == 1
    core.cmd("CMD_SYNC")
    core.mcmdq.drain()


def test_v18_probe_of_a_running_device(core: Core) -> None:
    """A crash kernel finds everything on and starts at step 1, twenty times."""
    for _ in range(20):
        enable_as_the_driver(core)
    assert core.qom("guest-errors") == 0


def test_gbpa_reset_value_is_a_property() -> None:
    with QtestMachine(("ummu,id=ummu0,gbpa-abort=on",)) as machine:
        assert Core(machine).regs.fields("GBPA")["ABORT"] == 1


# ---- properties ----------------------------------------------------------------------------------------------------

CAPABILITY_CASES = [
    ("prod-id=0", "IIDR", "PROD_ID", 0), ("prod-id=0xabc", "IIDR", "PROD_ID", 0xABC),
    ("prod-variant=3", "IIDR", "PROD_VARIANT", 3), ("arch-minor=2", "AIDR", "ARCH_MINOR_REV", 2),
    ("dsteid-size=8", "CAP0", "DSTEID_SIZE", 8), ("tokenid-size=10,max-tid=1023", "CAP0", "TOKENID_SIZE", 10),
    ("tct-two-level=off", "CAP0", "TCT_LEVEL", 0), ("tect-two-level=off", "CAP0", "TECT_LEVEL", 0),
    ("eventq-log2=7", "CAP1", "EVENTQ_SIZE", 7), ("mcmdq-log2=0", "CAP1", "MCMDQ_NUMB", 0),
    ("mcmdq-log2=8", "CAP1", "MCMDQ_NUMB", 8), ("stall-max=0", "CAP1", "STALL_MAX", 0),
    ("event-gen=off", "CAP1", "EVENT_GEN", 0), ("tlb-broadcast=on", "CAP2", "TLB_BROADCAST", 1),
    ("range-tlbi=off", "CAP2", "RANGE_TLBI", 0), ("oas=32", "CAP2", "OA_SIZE", 0), ("oas=44", "CAP2", "OA_SIZE", 4),
    ("gran-16k=off", "CAP2", "GRAN16K_T", 0), ("s2=off", "CAP2", "S2_TRANS", 0),
    ("s1=off,hyp-s1=off", "CAP2", "S1_TRANS", 0), ("hw-bypass=off", "CAP2", "HW_BYPASS", 0),
    ("httu=0", "CAP3", "HTTU_SUPPORT", 0), ("coherent=off", "CAP3", "COHERENT_ACCESS", 0),
    ("usi=off", "CAP3", "USI_SUPPORT", 0), ("stall-model=1", "CAP3", "STALL_MODEL", 1),
    ("hyp-s1=off", "CAP3", "HYP_S1CONTEXT", 0), ("mtm=off", "CAP6", "MTM_ID_MAX", 0),
    ("user-queues=1", "CAP4", "UCMDQ_UCPLQ_NUMB", 0), ("user-queues=300", "CAP4", "UCMDQ_UCPLQ_NUMB", 9),
    ("ucmdq-size-log2=8", "CAP4", "UCMDQ_SIZE", 8), ("pplb=on", "CAP4", "PPLB_SUPPORT", 1),
    ("mapt=off", "CAP5", "MAPT_SUPPORT", 0), ("free-bit=on", "CAP5", "FREE_BIT", 1),
    ("mapt-2m=on", "CAP5", "GRAN2M_P", 1), ("token-check=off", "CAP5", "TOKENVAL_CHK", 0),
    ("mapt-entry-mode=off", "CAP5", "MAPT_MODE", 2),
]  # fmt: skip


def test_properties_reach_the_capability_registers() -> None:
    """Up to eight devices in one QEMU: each shows its own property."""
    for first in range(0, len(CAPABILITY_CASES), 8):
        chunk = CAPABILITY_CASES[first : first + 8]
        with QtestMachine([f"ummu,id=ummu{n},{case[0]}" for n, case in enumerate(chunk)]) as machine:
            for n, (options, register, field, expected) in enumerate(chunk):
                assert Core(machine, n).regs.fields(register)[field] == expected, options


BAD_PROPERTIES = [
    ("prod-id=4096", "prod-id"), ("dsteid-size=0", "dsteid-size"), ("dsteid-size=17", "dsteid-size"),
    ("tokenid-size=21", "tokenid-size"), ("mcmdq-log2=9", "mcmdq-log2"), ("eventq-log2=20", "eventq-log2"),
    ("user-queues=0", "user-queues"), ("user-queues=65537", "user-queues"), ("stall-max=4096", "stall-max"),
    ("httu=3", "httu"), ("stall-model=3", "stall-model"), ("oas=33", "oas"), ("tlb-entries=2000000", "tlb-entries"),
    ("s1=off,s2=off,hyp-s1=off", "stage"), ("gran-4k=off,gran-16k=off,gran-64k=off", "granule"),
    ("s1=off", "hyp-s1"), ("min-tid=9,max-tid=8", "min-tid"), ("tokenid-size=4", "max-tid"),
    ("stall-model=2,stall-max=0", "stall-max"), ("mapt-entry-mode=off,mapt-table-mode=off", "mapt"),
    ("mapt-4k=off", "mapt-4k"), ("pplb=on,token-check=off", "pplb"), ("free-bit=on,mapt-table-mode=off", "free-bit"),
    ("no-such-property=1", "no-such-property"),
]  # fmt: skip


@pytest.mark.parametrize("options, named", BAD_PROPERTIES, ids=[o for o, _ in BAD_PROPERTIES])
def test_v23_impossible_properties_end_qemu_with_one_line(options: str, named: str, tmp_path: Path) -> None:
    import subprocess

    arch = arch_by_name(guest_arch())
    qemu = find_qemu(arch.name)
    done = subprocess.run(
        [str(qemu), *firmware_options(qemu), *arch.machine, "-accel", "qtest", "-nodefaults",
         "-display", "none", "-device", f"ummu,id=ummu0,{options}"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    lines = [line for line in done.stderr.strip().splitlines() if "WARNING: ASan" not in line]
    assert done.returncode == 1, done
    assert len(lines) == 1 and named in lines[0], done.stderr


def test_two_ummus_are_independent() -> None:
    with QtestMachine(("ummu,id=ummu0", "ummu,id=ummu1,prod-id=7")) as machine:
        first = Core(machine, 0)
        second = Core(machine, 1, beside=first)
        first.regs.write("CTRL0", UMMU_EN)
        assert second.regs.read("CTRL0") == 0
        assert second.regs.fields("IIDR")["PROD_ID"] == 7
        assert first.regs.fields("IIDR")["PROD_ID"] == 1


def test_largest_user_queue_number_has_its_pages() -> None:
    with QtestMachine(("ummu,id=ummu0,user-queues=65536",)) as machine:
        core = Core(machine)
        for page in (0, 65535):
            core.write(0x20000 + page * 0x1000 + 12, 0x4321, 2)
            assert core.read(0x20000 + page * 0x1000 + 12, 2) == 0x4321
        with pytest.raises(QtestError):
            machine.function(0x554D, 1)
