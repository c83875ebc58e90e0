# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory management of the accelerator: mirror, device faults, migration, exclusive access."""

from __future__ import annotations

import pytest
from ummulab.pytest_plugin.lab import VmFactory
from ummulab.vm import Vm
from ummulab.vm.tap import parse_tap

PROGRAMS = "/usr/libexec/ummulab"
MODULES = "/usr/lib/ummulab/modules"
VRAM = 16 << 20
ACCELS = tuple(f"ummu-accel,id=accel{i},ummu=ummu0,eid={0x100 + i:#x},vram-size={VRAM}" for i in range(2))
MODES = ("private", "coherent")

# Huge pages by advice, some of hugetlb, and a swap device that is memory.
SET_UP = """
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
echo 8 >/proc/sys/vm/nr_hugepages
echo 1 >/sys/kernel/mm/ksm/run
echo 32M >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
"""


def lab_vm(
    factory: VmFactory, mode: str, accels: int = 1, ummu: str = "", append: str = "", knobs: str = ""
) -> Vm:
    """A VM whose accelerators' driver manages memory in ``mode``, loaded with ``knobs``."""
    devices = (f"ummu,id=ummu0{ummu}", *ACCELS[:accels])
    vm = factory(devices=devices, cpus=2, append=append, memory_mib=320)
    vm.run(f"rmmod ummu_accel && insmod {MODULES}/ummu_accel.ko hmm_mode={mode} {knobs}", check=True)
    vm.run(SET_UP, check=True)
    return vm


def check_program(vm: Vm, *command: str, seconds: float = 240) -> None:
    """Run a TAP program of ours and what must hold after each: no report, no memory region left."""
    result = vm.run([f"{PROGRAMS}/{command[0]}", *command[1:]], seconds)
    report = parse_tap(result.text)
    assert report.problems == (), result.text
    assert [line.name for line in report.failed] == []
    vm.run("rmmod ummu_accel", check=True)
    assert vm.kernel_reports == []
    assert vm.run("grep -c 'ummu_accel vram' /proc/iomem").text.strip() == "0"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", ["hmm_test", "hmm_cases_test"])
def test_hmm_program(vm_factory: VmFactory, mode: str, program: str) -> None:
    """Cases of the kernel's hmm selftest and our own, with both kinds of device memory."""
    check_program(lab_vm(vm_factory, mode), program)


@pytest.mark.parametrize("mode", MODES)
def test_hmm_knobs_and_troubleshooting(vm_factory: VmFactory, mode: str) -> None:
    """Each parameter does, and each row of the troubleshooting page shows, what docs/hmm.md says."""
    check_program(lab_vm(vm_factory, mode, knobs="defrag_interval_ms=0"), "hmm_knobs_test")


@pytest.mark.parametrize("mode", MODES)
def test_hmm_every_kind_of_memory(vm_factory: VmFactory, mode: str, seed: int) -> None:
    """31 kinds of memory in five ways of use, on two NUMA nodes."""
    check_program(lab_vm(vm_factory, mode, append="numa=fake=2"), "hmm_matrix_test", str(seed))


@pytest.mark.parametrize("mode", MODES)
def test_hmm_while_something_else_happens(vm_factory: VmFactory, mode: str, seed: int) -> None:
    """Unmapping, revoking, killing, two devices; the event queue holds four events."""
    vm = lab_vm(vm_factory, mode, accels=2, ummu=",eventq-log2=2")
    check_program(vm, "hmm_hard_test", str(seed))
