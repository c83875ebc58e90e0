# SPDX-License-Identifier: GPL-2.0-or-later
"""Teardown order and hot-unplug of both devices (case V23).

A device can only be unplugged behind a root port, so the port's bus numbers, window and slot registers are programmed
here as firmware and a hot-plug driver would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from ummulab.qtest.accel import OP
from ummulab.qtest.bench import CANARY_VA, Bench
from ummulab.qtest.errors import QmpCommandError, QtestError
from ummulab.qtest.machine import VENDOR, QtestMachine
from ummulab.qtest.pci import PciBus, PciFunction

ROOT_PORT = 0x000C
WINDOW = 0x20000000
EXPRESS = 0x10
SLOT_CONTROL = 0x18
POWER_OFF = 0x0400 | 0x0300  # controller off, indicator off
R = 2


def plug_ports(machine: QtestMachine) -> list[PciFunction]:
    """Give every root port a bus and a window, find what is behind it; returns the ports."""
    arch = machine.arch
    ports = [f for f in PciBus(machine.qtest, arch.ecam, 0, 0).scan() if f.device == ROOT_PORT]
    for n, port in enumerate(ports):
        bus, base = n + 1, WINDOW + n * 0x4000000
        port.write_config(0x18, bus << 16 | bus << 8)
        port.write_config(0x20, (base + 0x3F00000) & 0xFFF00000 | base >> 16)
        port.enable()
        below = PciBus(machine.qtest, arch.ecam + (bus << 20), base, arch.mmio64)
        for function in below.scan():
            if function.vendor == VENDOR:
                below.place_bars(function)
                function.enable()
                machine.functions.append(function)
    return ports


@contextlib.contextmanager
def running(*devices: str) -> Iterator[tuple[Bench, list[PciFunction]]]:
    """BASE on a machine with root ports."""
    with QtestMachine(devices) as machine:
        ports = plug_ports(machine)
        yield Bench(machine), ports


def power_off(port: PciFunction) -> None:
    """What a hot-plug driver writes to let a device go."""
    at = port.capability(EXPRESS) + SLOT_CONTROL
    port.write_config(at, port.read_config(at, 2) | POWER_OFF, 2)


def gone(bench: Bench, name: str) -> bool:
    try:
        bench.machine.qmp.qom_get(f"/machine/peripheral/{name}", "type")
    except QmpCommandError:
        return True
    return False


UMMU_BEHIND = (
    "pcie-root-port,id=rp0,chassis=1",
    "ummu,id=ummu0,bus=rp0",
    "ummu-accel,id=accel0,ummu=ummu0,eid=0x100",
)
BOTH_BEHIND = ("pcie-root-port,id=rp0,chassis=1", "pcie-root-port,id=rp1,chassis=2", "ummu,id=ummu0,bus=rp0",
               "ummu-accel,id=accel0,ummu=ummu0,eid=0x100,bus=rp1")  # fmt: skip
TWO_CLIENTS = ("pcie-root-port,id=rp0,chassis=1", "ummu,id=ummu0", "ummu-accel,id=accel0,ummu=ummu0,eid=0x100",
               "ummu-accel,id=accel1,ummu=ummu0,eid=0x101,bus=rp0")  # fmt: skip


def test_v23_ummu_with_clients_is_not_unplugged() -> None:
    with running(*UMMU_BEHIND) as (bench, _):
        with pytest.raises(QmpCommandError) as caught:
            bench.machine.qmp.command("device_del", id="ummu0")
        assert "behind it" in str(caught.value)
        bench.control_works()


def test_v23_right_order() -> None:
    with running(*BOTH_BEHIND) as (bench, ports):
        bench.control_works()
        bench.machine.qmp.command("device_del", id="accel0")
        power_off(ports[1])
        assert gone(bench, "accel0")
        bench.machine.qmp.command("device_del", id="ummu0")
        power_off(ports[0])
        assert gone(bench, "ummu0")


def test_v23_ummu_torn_out_under_a_running_client() -> None:
    """A slot that is powered off takes its device without asking: later requests of the client must fail, not crash."""
    with running(*BOTH_BEHIND) as (bench, ports):
        bench.grant(CANARY_VA, 0x100000, R)
        for _ in range(8):
            bench.queue.put(**bench.dma_fields("read", CANARY_VA, 0x100000))
        bench.queue.ring_bell()
        power_off(ports[0])
        assert gone(bench, "ummu0")
        for _ in range(50):
            bench.machine.qtest.clock_step(1_000_000)
        bench.queue.put(OPCODE=OP["NOP"])
        bench.queue.ring_bell()
        bench.machine.qtest.clock_step(1_000_000)
        bench.machine.qmp.command("device_del", id="accel0")
        power_off(ports[1])
        assert gone(bench, "accel0")


def test_v23_stalled_job_and_client_unplugged() -> None:
    """The client goes while one of its requests is stalled: nothing is left in the UMMU."""
    with running(*BOTH_BEHIND) as (bench, ports):
        bench.write_tcte(1, FBS=1)
        bench.cfgi(1)
        bench.grant(CANARY_VA, 0x1000, R)
        bench.matt.unmap(CANARY_VA, 0x1000)
        bench.queue.put(**bench.dma_fields("read", CANARY_VA, 64))
        bench.queue.ring_bell()
        for _ in range(10):
            bench.machine.qtest.clock_step(100_000)
        assert bench.qom("stalls") == 1 and bench.qom("pending-stalls") != ""
        bench.machine.qmp.command("device_del", id="accel0")
        power_off(ports[1])
        assert gone(bench, "accel0") and bench.qom("pending-stalls") == ""
        stag = bench.events()[0]["STAG"]
        bench.cmd("CMD_STALL_RESUME", RETRY=1, TAG=stag)
        bench.sync()
        for _ in range(10):
            bench.machine.qtest.clock_step(100_000)
        bench.sync()


def test_v23_one_of_two_clients_leaves() -> None:
    with running(*TWO_CLIENTS) as (bench, ports):
        bench.control_works()
        bench.machine.qmp.command("device_del", id="accel1")
        power_off(ports[0])
        assert gone(bench, "accel1")
        bench.control_works()


def test_v23_quit_in_mid_job() -> None:
    with running(*UMMU_BEHIND) as (bench, _):
        bench.grant(CANARY_VA, 0x800000, R)
        for _ in range(8):
            bench.queue.put(**bench.dma_fields("read", CANARY_VA, 0x800000))
        bench.queue.ring_bell()
        bench.machine.qtest.clock_step(1000)
        assert bench.machine.process.quit() == 0


@pytest.mark.parametrize(("devices", "words"), [
    (("ummu,id=ummu0", "ummu-accel,id=a,ummu=nobody,eid=1"), ("nobody",)),
    (("ummu,id=ummu0", "ummu-accel,id=a,eid=1"), ("ummu",)),
    (("edu,id=ummu0", "ummu-accel,id=a,ummu=ummu0,eid=1"), ("ummu0",)),
    (("ummu-accel,id=a,ummu=ummu0,eid=1", "ummu,id=ummu0"), ("ummu0",)),
    (("ummu,id=ummu0", "ummu-accel,id=a,ummu=ummu0,eid=1", "ummu-accel,id=b,ummu=ummu0,eid=0x1"), ("eid", "used")),
    (("ummu,id=ummu0", "ummu,id=ummu0"), ("ummu0",)),
    (("ummu-core,id=c",), ("ummu-core",)),
])  # fmt: skip
def test_v23_wrong_composition_ends_qemu_with_one_line(
    devices: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """Unknown UMMU, not a UMMU, a UMMU that comes later, an EID used twice."""
    with pytest.raises(QtestError) as caught, QtestMachine(devices):
        pass
    said = [line for line in str(caught.value).splitlines() if "-device" in line]
    assert len(said) == 1 and all(word in said[0] for word in words), caught.value


def test_v23_same_eid_behind_two_ummus_is_fine() -> None:
    devices = (
        "ummu,id=ummu0",
        "ummu,id=ummu1",
        "ummu-accel,id=a,ummu=ummu0,eid=1",
        "ummu-accel,id=b,ummu=ummu1,eid=1",
    )
    with QtestMachine(devices) as machine:
        assert len(machine.functions) == 4
