# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory management of the accelerator: mirror, device faults, migration, exclusive access."""

from __future__ import annotations

import pytest
from ummulab.pytest_plugin.lab import VmFactory
from ummulab.vm.tap import parse_tap

PROGRAMS = "/usr/libexec/ummulab"
MODULES = "/usr/lib/ummulab/modules"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
DEVICES = ("ummu,id=ummu0", "ummu-accel,id=accel0,ummu=ummu0,eid=0x100,vram-size=16777216")


@pytest.mark.parametrize("mode", ["private", "coherent"])
@pytest.mark.parametrize("program", ["hmm_test", "hmm_cases_test"])
def test_hmm_program(vm_factory: VmFactory, mode: str, program: str) -> None:
    """Cases of the kernel's hmm selftest and our own, with both kinds of device memory."""
    vm = vm_factory(devices=DEVICES, cpus=2)
    vm.run(f"rmmod ummu_accel && insmod {MODULES}/ummu_accel.ko hmm_mode={mode}", check=True)
    vm.run(f"echo madvise >{HUGE_PAGES}; echo 8 >/proc/sys/vm/nr_hugepages", check=True)
    result = vm.run([f"{PROGRAMS}/{program}"], 240)
    report = parse_tap(result.text)
    assert report.problems == (), result.text
    assert [line.name for line in report.failed] == []
    vm.run("rmmod ummu_accel", check=True)
    assert vm.kernel_reports == []
