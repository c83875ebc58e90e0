# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab bench grant``: what libummu's calls cost in the guest."""

from __future__ import annotations

import json

from ummulab.bench import BenchOptions, Row
from ummulab.vm.config import VmConfig
from ummulab.vm.session import Session
from ummulab.vm.vm import Vm

PROGRAM = "/usr/libexec/ummulab/grant_bench"
MODULES = "/usr/lib/ummulab/modules"
BUDGET = 300.0
CPUS = 4


def bench_grant(options: BenchOptions) -> list[Row]:
    """Rows in seconds for one grant + ungrant (``grant_*`` beside that many open ranges), pairs a second for
    ``threads_*``, seconds for ``batch_1000`` (baseline: the same by single calls), ``plbi_queue_vs_ioctl``
    (baseline: the ioctl) and ``nop_latency`` (doorbell to completion, waiting included)."""
    session = Session(options.arch, accel=options.accel)
    config = VmConfig(arch=options.arch, accel=session.accel.name, cpus=CPUS, memory_mib=512)
    with session.fresh(config) as vm:
        return measure(vm)


def measure(vm: Vm) -> list[Row]:
    """All rows, on a VM that nobody else uses."""
    by_queue = _ask(vm, "kcmd_plbi=0", "live", 0)["seconds"]
    by_ioctl = _ask(vm, "kcmd_plbi=1", "live", 0)["seconds"]
    # From here on with ioctls: what every product can do.
    first = _run(vm, "live", 1)["seconds"]
    rows = [Row("grant_1", first, "s")]
    for name, count in (("grant_1e3", 1_000), ("grant_1e5", 100_000)):
        rows.append(Row(name, _run(vm, "live", count)["seconds"], "s", first))
    one = _run(vm, "threads", 1)["per_second"]
    rows.append(Row("threads_1", one, "1/s"))
    rows += [Row(f"threads_{n}", _run(vm, "threads", n)["per_second"], "1/s", one) for n in (2, 4)]
    batch = _run(vm, "batch", 1000)
    rows.append(Row("batch_1000", batch["batch"], "s", batch["single"]))
    rows.append(Row("plbi_queue_vs_ioctl", by_queue, "s", by_ioctl))
    rows.append(Row("nop_latency", _run(vm, "nop", 0)["seconds"], "s"))
    return rows


def _ask(vm: Vm, parameters: str, what: str, count: int) -> dict[str, float]:
    vm.run("rmmod ummu_accel && rmmod ummu", check=True)
    vm.run(f"insmod {MODULES}/ummu.ko {parameters} && insmod {MODULES}/ummu_accel.ko", check=True)
    return _run(vm, what, count)


def _run(vm: Vm, what: str, count: int) -> dict[str, float]:
    found = json.loads(vm.run([PROGRAM, what, str(count)], BUDGET, check=True).stdout)
    return {str(name): float(value) for name, value in found.items()}
