# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab bench vm``: what a VM costs."""

from __future__ import annotations

import statistics

from ummulab.bench import BenchOptions, Row, median_seconds
from ummulab.vm.config import VmConfig
from ummulab.vm.session import Session
from ummulab.vm.vm import Vm


def bench_vm(options: BenchOptions) -> list[Row]:
    """Measure in seconds: ``boot`` (start of QEMU to the first answer, modules loaded), ``clone``
    (the same for a copy of the template), ``exec`` (one command in a running VM) and
    ``test_overhead`` (a fresh VM, one command, and its end)."""
    session = Session(options.arch, accel=options.accel)
    config = VmConfig(arch=options.arch, accel=session.accel.name)
    boot = _median_boot(session, config, options.repeat)
    session.templates.get(config)

    def one_test() -> None:
        with session.templates.clone(config) as vm:
            vm.run("true", check=True)

    def plain_test() -> None:
        with Vm(session.images, config) as vm:
            vm.run("true", check=True)

    clones = []
    for _ in range(options.repeat):
        with session.templates.clone(config) as vm:
            clones.append(vm.times["boot"])
    with session.templates.clone(config) as vm:
        vm.run("true", check=True)
        exec_seconds = median_seconds(lambda: vm.run("true", check=True), 4 * options.repeat)
    overhead = median_seconds(one_test, options.repeat)
    plain = median_seconds(plain_test, max(1, options.repeat // 2))
    return [
        Row("boot", boot, "s"),
        Row("clone", statistics.median(clones), "s", boot),
        Row("exec", exec_seconds, "s"),
        Row("test_overhead", overhead, "s", plain),
    ]


def _median_boot(session: Session, config: VmConfig, repeat: int) -> float:
    boots = []
    for _ in range(repeat):
        with Vm(session.images, config) as vm:
            boots.append(vm.times["boot"])
    return statistics.median(boots)
