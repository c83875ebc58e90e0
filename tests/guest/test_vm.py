# SPDX-License-Identifier: GPL-2.0-or-later
"""A real VM as an object: commands, files, states, panics, deaths, hangs."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from ummulab.memory import MemoryReadError
from ummulab.pytest_plugin.lab import VmFactory
from ummulab.vm import CommandFailed, GuestPanic, Vm, VmDied, VmTimeout, command
from ummulab.vm.state import load_state


def test_both_modules_are_bound(module_vm: Vm) -> None:
    drivers = module_vm.run(
        "for d in /sys/bus/pci/devices/*/driver; do basename `readlink $d`; done", check=True
    ).text.split()
    assert {"ummu", "ummu_accel"} <= set(drivers)
    assert module_vm.run("ls /dev/ummu/tid /dev/ummu_accel0", check=True).status == 0
    assert module_vm.kernel_reports == []


def test_output_and_status_are_exact(module_vm: Vm) -> None:
    data = random.Random(7).randbytes(100_000)
    result = module_vm.run("cat; echo err >&2; exit 42", input=data)
    assert (result.status, result.stdout, result.stderr) == (42, data, b"err\n")
    assert module_vm.run("kill -SEGV $$").status == 128 + signal.SIGSEGV
    assert module_vm.run(["printf", "%s|", "a b", "'", '"', "$x", ""]).text == "a b|'|\"|$x||"


def test_failed_command_shows_what_it_said(module_vm: Vm) -> None:
    with pytest.raises(CommandFailed, match="status 3") as caught:
        module_vm.run("echo out; echo why >&2; exit 3", check=True)
    assert "  why" in str(caught.value)


def test_files_in_and_out(module_vm: Vm) -> None:
    data = random.Random(8).randbytes(1 << 20)
    module_vm.put("/tmp/a file", data, mode=0o755)
    assert module_vm.get("/tmp/a file") == data
    assert module_vm.run("test -x '/tmp/a file'").status == 0
    with pytest.raises(CommandFailed, match=r"(?i)no such file"):
        module_vm.get("/none")


def test_a_command_over_its_budget_is_killed_and_the_vm_goes_on(vm: Vm) -> None:
    with pytest.raises(VmTimeout, match="sleep 1000"):
        vm.run("echo before; sleep 1000", timeout=1.0)
    assert vm.run("ps | grep -c '[s]leep 1000'").text.strip() == "0"
    assert vm.run("echo after", check=True).text == "after\n"


def test_a_hung_guest_is_named(vm: Vm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "KILL_BUDGET", 0.5)
    vm.qmp.execute("stop")
    with pytest.raises(VmTimeout) as caught:
        vm.run("true", timeout=1.0)
    assert "true" in str(caught.value).splitlines()[0]
    assert "QMP status: paused" in str(caught.value)


def test_panic_is_an_error_with_its_stack(vm: Vm) -> None:
    with pytest.raises(GuestPanic) as caught:
        vm.run("echo c >/proc/sysrq-trigger")
    assert "sysrq triggered crash" in caught.value.reason
    assert "__handle_sysrq+" in caught.value.trace, caught.value.trace


def test_panic_is_found_also_when_nobody_waits_for_a_command(vm: Vm) -> None:
    vm.run("(sleep 1; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &", check=True)
    with pytest.raises(GuestPanic):
        vm.wait_exit(30)


def test_oops_of_a_module_is_a_panic_too(vm: Vm) -> None:
    """Every fault of the kernel ends a test: BUG and Oops do not go by as a line in a log."""
    assert vm.run("cat /proc/sys/kernel/panic_on_oops").text == "1\n"


def test_killed_qemu_is_named(vm: Vm) -> None:
    os.kill(vm.pid, signal.SIGKILL)
    with pytest.raises(VmDied, match="SIGKILL"):
        vm.run("true")


def test_power_off_ends_qemu_in_order(vm: Vm) -> None:
    vm.run("(sleep 0.2; poweroff -f) >/dev/null 2>&1 &")
    assert vm.wait_exit(30) == 0
    assert not vm.alive


def test_several_vms_are_apart(vm_factory: VmFactory) -> None:
    first, second = vm_factory(), vm_factory()
    first.run("echo 1 >/tmp/who", check=True)
    second.run("echo 2 >/tmp/who", check=True)
    assert (first.run("cat /tmp/who").text, second.run("cat /tmp/who").text) == ("1\n", "2\n")
    assert first.pid != second.pid


def test_clones_do_not_see_each_other(vm_factory: VmFactory) -> None:
    first = vm_factory()
    first.run("echo mine >/tmp/left; sync", check=True)
    first.stop()
    assert vm_factory().run("test -e /tmp/left").status == 1


@pytest.mark.parametrize("of_a_clone", [False, True])
def test_save_and_start_from_it(vm_factory: VmFactory, tmp_path: Path, of_a_clone: bool) -> None:
    vm = vm_factory(boot=not of_a_clone)
    vm.run("echo kept >/tmp/kept; sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid", check=True)
    vm.save(tmp_path / "saved")
    assert vm.run("echo still here", check=True).text == "still here\n"
    vm.stop()
    again = vm_factory(state=load_state(tmp_path / "saved", vm.images.hashes))
    assert again.run("cat /tmp/kept; kill -0 `cat /tmp/pid`", check=True).text == "kept\n"
    assert "zero-copy: ok" in again.run(["ummu-demo", "zero-copy"], check=True).text


def test_console_is_a_tty(vm: Vm) -> None:
    console = vm.console()
    console.sendline("tty")
    console.expect(r"/dev/hvc0", timeout=30)
    vm.set_console_size(101, 37)
    console.sendline("stty size")
    console.expect("37 101", timeout=30)


def test_memory_is_the_guests(vm: Vm) -> None:
    """A word written from outside is seen by the guest's own eyes, through a page of a clone."""
    before = vm.memory.read(vm.config.ram_base, 4096)
    assert len(before) == 4096
    with pytest.raises(MemoryReadError):
        vm.memory.read(vm.config.ram_base + vm.config.memory_bytes - 4, 8)


@pytest.mark.icount
def test_icount_makes_guest_time_repeatable(vm_factory: VmFactory) -> None:
    """Until the first program runs (then the host's answers arrive when they do), each time stamp is the same."""
    logs = [vm_factory(boot=True).kernel_log.text().partition("Run /init")[0] for _ in range(2)]
    assert len(logs[0].splitlines()) > 50
    assert logs[0] == logs[1]


def test_logs_are_files_on_request(
    vm_factory: VmFactory, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    vm = Vm(vm_factory().images, log_dir=tmp_path / "logs")
    with vm:
        vm.run("echo marker >/dev/kmsg", check=True)
        deadline = time.monotonic() + 30
        while "marker" not in (tmp_path / "logs/kernel.log").read_text(errors="replace"):
            assert time.monotonic() < deadline, vm.evidence()
            time.sleep(0.05)
    assert {path.name for path in (tmp_path / "logs").iterdir()} >= {"kernel.log", "console.log", "qemu.log"}
