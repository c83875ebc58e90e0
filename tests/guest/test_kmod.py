# SPDX-License-Identifier: GPL-2.0-or-later
"""ummu.ko: the rules of /dev/ummu/tid by kselftest programs, with every choice of the module's parameters."""

from __future__ import annotations

import json
import re

import pytest
from ummulab.pytest_plugin.lab import VmFactory
from ummulab.vm import Vm
from ummulab.vm.tap import parse_tap

PROGRAMS = "/usr/libexec/ummulab"
MODULES = "/usr/lib/ummulab/modules"
SHARED = pytest.mark.needs("shared_translation")

#: The module's parameters, alone and in the combinations that take other paths.
PARAMETERS = [
    pytest.param("", id="default"),
    pytest.param("matt=shared kcmd_plbi=1", marks=SHARED, id="shared-ioctl"),
    pytest.param("matt=shared kcmd_plbi=0", marks=SHARED, id="shared-queues"),
    pytest.param("matt=separated kcmd_plbi=0", id="separated-queues"),
    pytest.param("matt=separated kcmd_plbi=1 mapt_base_size=16K", id="separated-ioctl-16K"),
    pytest.param("mapt_base_size=2M", id="2M"),
]


def reload(vm: Vm, parameters: str) -> Vm:
    """Load both modules again, the first with parameters."""
    vm.run("rmmod ummu_accel && rmmod ummu", check=True)
    vm.run(f"insmod {MODULES}/ummu.ko {parameters} && insmod {MODULES}/ummu_accel.ko", check=True)
    return vm


def leftovers(vm: Vm) -> dict[str, int]:
    """What must be the same before and after: TIDs in sysfs; processes, contexts and blocks in the driver's lists."""
    tids = vm.run("ls /sys/devices/platform/ummu_tid_root", check=True).text.split()
    lists = vm.run("cat /sys/kernel/debug/ummu/tids", check=True).text
    found = {
        name: len(re.findall(rf"^ *{name} ", lists, re.MULTILINE)) for name in ("process:", "tid", "block")
    }
    return {"vdevs": len([name for name in tids if name.startswith("ummu_vdev")]), **found}


def test_leftovers_can_see_something(vm: Vm) -> None:
    """The count that other tests rely on is not always zero."""
    assert set(leftovers(vm).values()) == {0}
    hold(vm)
    assert all(count > 0 for count in leftovers(vm).values()), leftovers(vm)


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_abi_program(vm_factory: VmFactory, parameters: str) -> None:
    # All 512 blocks of 2 MiB are a gigabyte.
    vm = reload(vm_factory(memory_mib=1536) if "2M" in parameters else vm_factory(), parameters)
    before = leftovers(vm)
    result = vm.run([f"{PROGRAMS}/ummu_abi_test"], 120)
    report = parse_tap(result.text)
    assert report.problems == ()
    assert [line.name for line in report.failed] == []
    assert len(report.lines) > 60
    assert result.status == 0
    assert leftovers(vm) == before
    assert vm.kernel_reports == []


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_demo_in_both_translations(vm: Vm, parameters: str) -> None:
    reload(vm, parameters)
    assert "zero-copy: ok" in vm.run(["ummu-demo", "zero-copy"], check=True).text
    vm.run("head -c 3000000 /dev/urandom >/tmp/f", check=True)
    vm.run("ummu-demo crc --verify /tmp/f", 60, check=True)
    assert vm.kernel_reports == []


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("matt=separated", "own page tables"),
        pytest.param("matt=shared", "shared page tables", marks=SHARED),
        ("kcmd_plbi=0", "user queues"),
    ],
)
def test_the_log_says_what_was_chosen(vm: Vm, parameters: str, words: str) -> None:
    reload(vm, parameters)
    lines = [line for line in vm.kernel_log.text().splitlines() if re.search(r"ummu .*: UMMU \d+:", line)]
    assert words in lines[-1]


@pytest.mark.parametrize(
    "parameters", ["matt=nonsense", "mapt_base_size=17K", "mapt_base_size=0", "kcmd_plbi=7"]
)
def test_wrong_parameters_do_no_harm(vm: Vm, parameters: str) -> None:
    """Refused, or replaced by the default as the original does; never a fault."""
    vm.run("rmmod ummu_accel && rmmod ummu", check=True)
    result = vm.run(f"insmod {MODULES}/ummu.ko {parameters}")
    if result.status == 0:
        vm.run(f"insmod {MODULES}/ummu_accel.ko && ummu-demo zero-copy", check=True)
    assert vm.kernel_reports == []


def test_modules_load_again_and_again(vm: Vm) -> None:
    for _ in range(5):
        reload(vm, "")
    assert "zero-copy: ok" in vm.run(["ummu-demo", "zero-copy"], check=True).text


def hold(vm: Vm) -> int:
    """A process that holds two grants; returns its TID."""
    vm.run("(sleep 1000 | ummu-demo hold) >/tmp/out 2>&1 &")
    wait = "for i in `seq 100`; do grep -q holding /tmp/out && break; sleep 0.05; done; cat /tmp/out"
    said = vm.run(wait, check=True).text
    found = re.search(r"tid (0x[0-9a-f]+)", said)
    assert found, said
    return int(found[1], 16)


def test_module_in_use_stays(vm: Vm) -> None:
    hold(vm)
    vm.run(
        "for i in `seq 100`; do grep -q holding /tmp/out && break; sleep 0.05; done; grep holding /tmp/out",
        check=True,
    )
    assert vm.run("rmmod ummu").status != 0
    gone = "for i in `seq 200`; do pidof ummu-demo >/dev/null || exit 0; sleep 0.05; done; exit 1"
    vm.run(f"kill -9 `pidof ummu-demo`; {gone}", check=True)
    reload(vm, "")


@pytest.mark.parametrize("parameters", PARAMETERS[:2] + PARAMETERS[3:4])
def test_v08_killed_processes_leave_nothing(vm: Vm, parameters: str) -> None:
    reload(vm, parameters)
    before = leftovers(vm)
    for delay in (0, 0.005, 0.02, 0.05, 0.1):
        start = "for i in 1 2 3 4; do ummu-demo zero-copy >/dev/null 2>&1 & done"
        vm.run(f"{start}; sleep {delay}; killall -9 ummu-demo; wait")
    assert leftovers(vm) == before
    assert "zero-copy: ok" in vm.run(["ummu-demo", "zero-copy"], check=True).text
    assert vm.kernel_reports == []


def test_many_processes_at_once(vm_factory: VmFactory) -> None:
    vm = vm_factory(cpus=2)
    vm.run("for i in `seq 12`; do ummu-demo zero-copy >/tmp/o$i 2>&1 & done; wait", 120, check=True)
    assert vm.run("grep -l 'zero-copy: ok' /tmp/o* | wc -l", check=True).text.strip() == "12"
    assert vm.kernel_reports == []


def test_unbind_and_bind_the_devices(vm: Vm) -> None:
    drivers = "/sys/bus/pci/drivers"
    unbind = "cd {0}/{1}; ls -d 0000:* >/tmp/{1}; cat /tmp/{1} >unbind"
    for name in ("ummu_accel", "ummu"):
        vm.run(unbind.format(drivers, name), check=True)
    without = vm.run(["ummu-demo", "zero-copy"])
    assert (without.status, without.stdout) == (1, b"")
    for name in ("ummu", "ummu_accel"):
        vm.run(f"cat /tmp/{name} >{drivers}/{name}/bind", check=True)
    assert "zero-copy: ok" in vm.run(["ummu-demo", "zero-copy"], check=True).text
    assert vm.kernel_reports == []


@pytest.mark.parametrize("words", ["live 100", "threads 2", "batch 50", "nop"])
def test_grant_bench(module_vm: Vm, words: str) -> None:
    figures = json.loads(module_vm.run(f"{PROGRAMS}/grant_bench {words}", 60, check=True).stdout)
    assert figures
    assert all(value > 0 for value in figures.values())


@pytest.mark.parametrize("parameters", PARAMETERS[:2] + PARAMETERS[3:4])
@pytest.mark.parametrize("start", [1, 0xBEEF])
def test_a_hostile_process_reaches_nobody(vm: Vm, parameters: str, start: int) -> None:
    reload(vm, parameters)
    before = leftovers(vm)
    result = vm.run([f"{PROGRAMS}/isolation_test", hex(start)], 120)
    report = parse_tap(result.text)
    assert report.problems == (), result.text + result.stderr.decode()
    assert [line.name for line in report.failed] == []
    queues = "kcmd_plbi=1" not in parameters
    assert any("random commands" in line.name for line in report.lines) is queues
    assert "zero-copy: ok" in vm.run(["ummu-demo", "zero-copy"], check=True).text
    assert leftovers(vm) == before
    assert vm.kernel_reports == []


def test_debugfs_shows_a_live_tid(vm: Vm) -> None:
    tid = hold(vm)
    shown = vm.run("cat /sys/kernel/debug/ummu/tids", check=True).text
    assert f"tid {tid:#x}:" in shown
    assert "mapt: en 1 mode table" in shown
    units = vm.run("cat /sys/kernel/debug/ummu/units", check=True).text
    assert "mcmdq 0:" in units
    assert "0x0:0x100" in vm.run("cat /sys/kernel/debug/ummu/entities", check=True).text


def test_tracepoints_follow_a_grants_life(vm: Vm) -> None:
    vm.run("echo 1 >/sys/kernel/tracing/events/ummu/enable; ummu-demo zero-copy", check=True)
    trace = vm.run("cat /sys/kernel/tracing/trace", check=True).text
    for event in ("ummu_tid_alloc", "ummu_context", "ummu_plbi", "ummu_event", "ummu_tid_free", "ummu_cmd"):
        assert f"{event}:" in trace, event


def test_sysfs_shows_each_tid(vm: Vm) -> None:
    tid = hold(vm)
    script = "cat /sys/devices/platform/ummu_tid_root/ummu_vdev*/ummu-vdev-attr/tid_val"
    assert str(tid) in vm.run(script, check=True).text.split()


@pytest.mark.parametrize("parameters", PARAMETERS[1:5])
def test_memory_that_changes_under_the_device(vm: Vm, parameters: str) -> None:
    """Unmapped, replaced, dropped, protected, forked, moved, huge, shared with a file: in both translations."""
    reload(vm, parameters)
    before = leftovers(vm)
    result = vm.run([f"{PROGRAMS}/memory_test"], 120)
    report = parse_tap(result.text)
    assert report.problems == (), result.text
    assert [line.name for line in report.failed] == []
    assert len(report.lines) > 25
    assert leftovers(vm) == before
    assert vm.kernel_reports == []


def test_processes_that_end_inside_the_library(vm: Vm) -> None:
    """exit() by main, by a thread's side and by a signal handler, while other threads grant."""
    before = leftovers(vm)
    result = vm.run([f"{PROGRAMS}/exit_test"], 120)
    report = parse_tap(result.text)
    assert report.problems == (), result.text
    assert [line.name for line in report.failed] == []
    assert leftovers(vm) == before
    assert vm.kernel_reports == []
