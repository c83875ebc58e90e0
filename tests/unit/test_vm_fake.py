# SPDX-License-Identifier: GPL-2.0-or-later
"""The VM layer against a stand-in for QEMU that dies, hangs and floods as told."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ummulab.build import Images
from ummulab.vm import CommandFailed, GuestPanic, QmpError, Vm, VmConfig, VmDied, VmError, VmTimeout
from ummulab.vm import vm as vm_module

FAKE = Path(__file__).with_name("fake_qemu.py")
MakeVm = Callable[..., Vm]


@pytest.fixture
def images(tmp_path: Path) -> Images:
    folder = tmp_path / "a folder, with spaces"
    folder.mkdir()
    link = folder / "qemu-system-fake"
    link.symlink_to(FAKE)
    return Images("aarch64", link, folder, folder / "kernel", folder / "initrd", {"qemu": "0"}, {})


@pytest.fixture
def make_vm(images: Images, monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[Vm] = []

    def make(config: VmConfig | None = None, *, boot_timeout: float = 20.0, **mode: Any) -> Vm:
        monkeypatch.setenv("FAKE_QEMU", json.dumps(mode))
        vm = Vm(images, config or VmConfig(memory_mib=32), boot_timeout=boot_timeout)
        made.append(vm)
        return vm

    yield make
    for vm in made:
        vm.kill()


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def gone(pid: int, budget: float = 5.0) -> bool:
    deadline = time.monotonic() + budget
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


# -- start and death ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "status", "text"),
    [
        ("start", "status 1", "'nonsense' is not a valid device model name"),
        ("greeting", "status 4", "died after the greeting"),
        ("capabilities", "status 6", "died after the capabilities"),
    ],
)
def test_early_death_names_status_and_stderr(make_vm: MakeVm, when: str, status: str, text: str) -> None:
    # Without a shell, or its answer could win the race against the news of the death.
    with pytest.raises(VmDied) as caught:
        make_vm(die=when, no_shell=True).start()
    assert status in str(caught.value).splitlines()[0]
    assert text in str(caught.value)


def test_missing_binary_is_one_line(images: Images) -> None:
    broken = Images("aarch64", images.qemu_datadir / "none", *list(vars(images).values())[2:])
    with pytest.raises(VmError, match="none"):
        Vm(broken, VmConfig(memory_mib=32)).start()


def test_silent_qemu_times_out_and_is_gone(make_vm: MakeVm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm_module, "GREETING_BUDGET", 0.5)
    vm = make_vm(silent=True)
    with pytest.raises(VmTimeout, match=r"0\.5 s waiting for the QMP greeting"):
        vm.start()
    assert not vm.alive


def test_boot_timeout_shows_kernel_log(make_vm: MakeVm) -> None:
    vm = make_vm(no_shell=True, klog="[ 0.1] stuck in the initcalls\n", boot_timeout=0.5)
    with pytest.raises(VmTimeout) as caught:
        vm.start()
    assert "shell to answer" in str(caught.value)
    assert "stuck in the initcalls" in str(caught.value)
    assert "QMP status: running" in str(caught.value)


def test_killed_under_us(make_vm: MakeVm) -> None:
    with make_vm() as vm:
        threading.Timer(0.2, os.kill, (vm.pid, signal.SIGKILL)).start()
        with pytest.raises(VmDied, match="signal SIGKILL"):
            vm.run("sleep 30")
        with pytest.raises(VmDied, match="signal SIGKILL"):
            vm.qmp.execute("query-status")


def test_stopped_qemu_command_names_itself(make_vm: MakeVm) -> None:
    with make_vm(stop_on="query-name") as vm:
        with pytest.raises(VmTimeout) as caught:
            vm.qmp.execute("query-name", timeout=0.5)
        assert "QMP command query-name" in str(caught.value)
        assert "stopped by a signal" in str(caught.value)


def test_stop_ends_a_qemu_that_does_not_listen(make_vm: MakeVm) -> None:
    vm = make_vm(mute=["quit"]).start()
    pid = vm.pid
    vm.stop(timeout=0.3)
    assert gone(pid)


def test_many_cycles_leak_nothing(make_vm: MakeVm, images: Images) -> None:
    with make_vm():
        pass
    gc.collect()
    before = open_fds(), threading.active_count()
    for _ in range(20):
        with Vm(images, VmConfig(memory_mib=32)) as vm:
            assert vm.run("echo x").text == "x\n"
    gc.collect()
    assert (open_fds(), threading.active_count()) == before


def test_harness_killed_takes_qemu_along(images: Images) -> None:
    script = f"""
import sys
from pathlib import Path
from ummulab.build import Images
from ummulab.vm import Vm, VmConfig
d = Path({str(images.qemu_datadir)!r})
vm = Vm(Images("aarch64", Path({str(images.qemu)!r}), d, d, d, {{}}, {{}}), VmConfig(memory_mib=32)).start()
print(vm.pid, flush=True)
vm.run("sleep 60", timeout=60)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    qemu = int(child.stdout.readline())
    child.kill()
    child.wait()
    assert gone(qemu)


# -- events -------------------------------------------------------------------------------------


def test_all_events_kept_in_order(make_vm: MakeVm) -> None:
    count = 20_000
    with make_vm(flood=count) as vm:
        vm.qmp.wait_event("FLOOD", 60, lambda e: e.data["number"] == count - 1)
        flood = vm.qmp.events()
        assert [e.data["number"] for e in flood] == list(range(count))
        assert [e.index for e in flood] == list(range(count))
        assert all(a.time <= b.time for a, b in zip(flood, flood[1:], strict=False))
        assert vm.qmp.events_dropped == 0


def test_dropped_events_are_counted(make_vm: MakeVm) -> None:
    vm = make_vm(flood=5000)
    vm.qmp._max_events = 1000
    with vm:
        last = vm.qmp.wait_event("FLOOD", 20, lambda e: e.data["number"] == 4999)
        kept = vm.qmp.events()
        assert len(kept) <= 1000
        assert vm.qmp.events_dropped + len(kept) == 5000
        assert last.index == 4999


def test_events_before_the_wait_and_after_the_exit(make_vm: MakeVm) -> None:
    with make_vm(flood=3) as vm:
        vm.stop()
        assert vm.qmp.wait_event("FLOOD", 1).data["number"] == 0
        assert vm.qmp.wait_event("SHUTDOWN", 1).data["reason"] == "host-qmp-quit"


def test_event_that_never_comes(make_vm: MakeVm) -> None:
    with make_vm() as vm, pytest.raises(VmTimeout, match="QMP event NEVER"):
        vm.qmp.wait_event("NEVER", 0.3)


def test_qmp_error_and_transcript(make_vm: MakeVm) -> None:
    with make_vm() as vm:
        with pytest.raises(QmpError, match="QMP refuse: refused as told"):
            vm.qmp.execute("refuse")
        assert any("refused as told" in line for line in vm.qmp.transcript)
        assert vm.qmp.execute("query-status")["running"]


# -- panic --------------------------------------------------------------------------------------


def test_panic_then_exit_at_once_is_a_panic(make_vm: MakeVm) -> None:
    with make_vm(panic_on="query-name") as vm:
        with pytest.raises(GuestPanic) as caught:
            vm.qmp.execute("query-name")
        assert (
            str(caught.value).splitlines()[0]
            == "guest panic: Kernel panic - not syncing: Oops: Fatal exception"
        )
        assert "Unable to handle kernel NULL pointer" in caught.value.trace
        assert "ummu_event_thread+0x40" in caught.value.trace
        assert [r.text.split("] ")[1][:6] for r in vm.kernel_reports] == ["Unable", "Intern"]


def test_panic_ends_a_command_and_an_event_wait(make_vm: MakeVm) -> None:
    for wait in (lambda vm: vm.run("sleep 60", 60), lambda vm: vm.qmp.wait_event("NEVER", 60)):
        with make_vm(panic_on="x-panic") as vm:
            threading.Timer(0.2, lambda vm=vm: pytest.raises(GuestPanic, vm.qmp.execute, "x-panic")).start()
            start = time.monotonic()
            with pytest.raises(GuestPanic):
                wait(vm)
            assert time.monotonic() - start < 30


# -- command port -------------------------------------------------------------------------------


@pytest.fixture
def vm(make_vm: MakeVm) -> Any:
    with make_vm() as vm:
        yield vm


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("exit 3", 3, b"", b""),
        (["true"], 0, b"", b""),
        (["printf", "%s|", "a b", "it's", "$HOME", ""], 0, b"a b|it's|$HOME||", b""),
        ("printf out; printf err >&2; kill -9 $$", 137, b"out", b"err"),
        ("kill -15 $$", 143, b"", b""),
        ("cat; echo end", 0, b"end\n", b""),
        ("printf 'no newline'", 0, b"no newline", b""),
        ("printf '\\000\\377\\r\\n\\033[31m'", 0, b"\0\xff\r\n\x1b[31m", b""),
        ("printf '\\303' ; sleep 0.05; printf '\\244'", 0, "ä".encode(), b""),
        ("a=1\nfor i in 1 2; do echo $i; done", 0, b"1\n2\n", b""),
    ],
)
def test_exact_results(vm: Vm, command: Any, status: int, out: bytes, err: bytes) -> None:
    result = vm.run(command)
    assert (result.status, result.stdout, result.stderr) == (status, out, err)
    assert result.duration > 0


def test_unknown_program(vm: Vm) -> None:
    result = vm.run(["no-such-program"])
    assert result.status == 127
    assert b"not found" in result.stderr


def test_check_raises_with_output(vm: Vm) -> None:
    with pytest.raises(CommandFailed) as caught:
        vm.run("echo what; echo why >&2; exit 5", check=True)
    assert caught.value.status == 5
    assert "why" in str(caught.value) and "what" in str(caught.value)


def test_binary_input_and_files(vm: Vm, tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    assert vm.run(["cat"], input=data).stdout == data
    assert vm.run(["cat"], input=b"").stdout == b""
    path = str(tmp_path / "it's here")
    vm.put(path, data, mode=0o640)
    assert vm.get(path) == data
    assert os.stat(path).st_mode & 0o777 == 0o640


def test_25_megabytes_exactly(vm: Vm) -> None:
    size = 25_000_000
    result = vm.run(f"head -c {size} /dev/zero | tr '\\0' x; echo done >&2", timeout=60)
    assert len(result.stdout) == size
    assert result.stdout.count(b"x") == size
    assert result.stderr == b"done\n"


def test_timed_out_command_is_killed_and_port_usable(vm: Vm) -> None:
    with pytest.raises(VmTimeout) as caught:
        vm.run("echo $$; sleep 1000 & sleep 1000", timeout=0.5)
    assert "guest command: echo $$; sleep 1000" in str(caught.value)
    assert gone(int(caught.value.partial))
    assert vm.run("echo still here").text == "still here\n"


def test_two_commands_at_once_do_not_mix(vm: Vm) -> None:
    results: dict[int, bytes] = {}

    def work(number: int) -> None:
        results[number] = vm.run(f"for i in 1 2 3; do echo {number}; sleep 0.02; done").stdout

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: f"{n}\n".encode() * 3 for n in range(4)}


def test_command_too_long_is_refused(vm: Vm) -> None:
    with pytest.raises(VmError, match="too long"):
        vm.run("#" + "x" * 200_000)
    assert vm.run("echo ok").text == "ok\n"
