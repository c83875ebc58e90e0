# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab exec``, ``run``, ``console``, ``decode`` and ``bench`` as a person uses them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from conftest import LAUNCHER, Ummulab
from ummulab.build import Images
from ummulab.vm import registry

LIMIT = 60.0


def qemus(mark: str) -> list[int]:
    """Processes whose command line holds a mark of this test."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if b"qemu-system" in words.split(b"\0", 1)[0] and mark.encode() in words:
                found.append(int(folder.name))
    return found


def wait_until(ready: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not ready():
        assert time.monotonic() < deadline, f"waited {LIMIT} s for {what}"
        time.sleep(0.05)


# -- exec ---------------------------------------------------------------------------------------


def test_exec_passes_everything_through(ummulab: Ummulab) -> None:
    done = ummulab("exec", "-i", "--", "sh", "-c", "cat; echo e >&2; exit 7", stdin="from outside\n")
    assert (done.status, done.stdout, done.stderr) == (7, "from outside\n", "e\n")


def test_exec_takes_a_script(ummulab: Ummulab) -> None:
    assert ummulab("exec", "echo $((6*7)) | tr 4 5").stdout == "52\n"


def test_exec_boots_on_request(ummulab: Ummulab) -> None:
    done = ummulab("exec", "--boot", "--memory", "128", "--cpus", "2", "--", "nproc")
    assert done.stdout == "2\n", done.stderr


@pytest.mark.parametrize("command", ["sleep 1000", "trap '' TERM INT; sleep 1000"])
def test_exec_over_its_time_ends_with_124(ummulab: Ummulab, command: str) -> None:
    done = ummulab("exec", "--timeout", "1", "--", "sh", "-c", f"echo before; {command}")
    assert done.status == 124
    assert done.stdout == "before\n"
    assert "timed out after 1 s waiting for guest command" in done.stderr


def test_exec_panic_is_an_error_with_the_reason(ummulab: Ummulab) -> None:
    done = ummulab("exec", "--", "sh", "-c", "echo c >/proc/sysrq-trigger")
    assert done.status == 1
    assert done.stderr.startswith(
        "ummulab: error: guest panic: Kernel panic - not syncing: sysrq triggered crash"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["exec"], "Missing argument 'COMMAND...'"),
        (["exec", "--memory", "1", "--", "true"], "Invalid value for '--memory'"),
        (["exec", "--arch", "pdp11", "--", "true"], "Invalid value for '--arch'"),
        (["exec", "--nonsense"], "No such option"),
        (["nonsense"], "No such command 'nonsense'"),
        (["bench", "nonsense"], "unknown benchmark 'nonsense'"),
        (["run", "--share", "/none"], "Directory '/none' does not exist"),
        (["console", "nobody"], "no running VM is called 'nobody'"),
        (["decode", "nonsense"], "Invalid value for"),
        (["decode", "tct", "--vm", "nobody"], "no running VM is called 'nobody'"),
    ],
)
def test_wrong_words_are_one_line(ummulab: Ummulab, words: list[str], says: str) -> None:
    done = ummulab(*words)
    assert done.status != 0
    assert says in done.stderr
    assert done.stdout == ""
    assert len([line for line in done.stderr.splitlines() if "hint:" not in line]) == 1, done.stderr


def test_missing_images_are_one_line(ummulab: Ummulab, tmp_path: Path) -> None:
    done = ummulab("exec", "--", "true", env={"UMMULAB_IMAGES": str(tmp_path / "none")})
    assert done.status != 0
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "none") in done.stderr


# -- what is left behind ------------------------------------------------------------------------


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_exec_leaves_no_qemu(sig: signal.Signals) -> None:
    mark = f"ummulab.mark={os.getpid()}.{sig.value}"
    # A booted VM shows its command line; --memory makes it one of a kind.
    memory = 100 + sig.value
    argv = [LAUNCHER, "exec", "--boot", "--memory", str(memory), "--", "sleep", "1000"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        size = f"size={memory}M"
        wait_until(lambda: qemus(size), f"QEMU of {mark} to start")
        process.send_signal(sig)
        status = process.wait(LIMIT)
    assert status != 0
    wait_until(lambda: not qemus(size), "QEMU to end with its owner")


def test_exec_leaves_no_file(ummulab: Ummulab, tmp_path: Path, images: Images) -> None:
    folders = {"TMPDIR": tmp_path / "tmp", "XDG_RUNTIME_DIR": tmp_path / "run"}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    done = ummulab("exec", "--", "true", env={name: str(folder) for name, folder in folders.items()})
    assert done.status == 0
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


# -- run, console, decode -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(images: Images) -> Iterator[pexpect.spawn]:
    """A VM in a terminal, at its prompt; ``.vm`` is its name."""
    child = pexpect.spawn(LAUNCHER, ["run"], encoding="utf-8", timeout=LIMIT, dimensions=(40, 100))
    try:
        child.expect(r"VM (vm-\w+), up after")
        child.vm = child.match[1]
        child.expect(r"ummulab:~# ")
        yield child
        child.sendline("poweroff")
        child.expect("the VM ended")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        assert child.vm not in [vm.name for vm in registry.running_vms()]
    finally:
        child.close(force=True)


def command(child: pexpect.spawn, line: str) -> str:
    child.sendline(f"{line}; echo status=$?")
    child.expect(r"status=(\d+)\r\n")
    output = child.before
    child.expect(r"ummulab:~# ")
    return str(output)


def test_run_shows_what_it_starts(running: pexpect.spawn) -> None:
    assert "zero-copy: ok" in command(running, "ummu-demo zero-copy")
    assert "40 100" in command(running, "stty size")


def test_decode_while_a_process_holds_its_grants(running: pexpect.spawn, ummulab: Ummulab) -> None:
    running.sendline("ummu-demo hold")
    running.expect(r"tid (0x[0-9a-f]+)\r\nread-only +(0x[0-9a-f]+), [^\r]*token (0x[0-9a-f]+)\r")
    tid, address, token = running.match.groups()
    running.expect("press Enter")
    for kind in ("regs", "tect", "tct", "matt", "mapt", "queues", "eventq"):
        done = ummulab(
            "decode", kind, "--vm", running.vm, *(["--tid", tid] if kind in ("tct", "mapt") else [])
        )
        assert done.status == 0, (kind, done.stderr)
        assert len(done.stdout.splitlines()) > 2, kind
    assert address[2:] in ummulab("decode", "mapt", "--vm", running.vm, "--tid", tid).stdout
    explain = ["explain", "--vm", running.vm, "--tid", tid, "--va", address]
    right = ummulab(*explain, "--access", "r", "--token", token)
    wrong = ummulab(*explain, "--access", "r", "--token", "0x1")
    write = ummulab(*explain, "--access", "w", "--token", token)
    running.sendline("")
    running.expect("ummulab:~# ")
    gone = ummulab(*explain, "--access", "r", "--token", token)
    assert right.status == 0, right.stdout
    assert [run.status for run in (wrong, write, gone)] == [3, 3, 3]
    assert "token" in wrong.stdout.lower()


def test_events_of_the_demo_are_decoded(running: pexpect.spawn, ummulab: Ummulab) -> None:
    command(running, "ummu-demo zero-copy")
    text = ummulab("decode", "eventq", "--vm", running.vm).stdout
    assert text.count("EVT_P_PERMISSION") >= 4


def test_explain_agrees_with_the_device(running: pexpect.spawn, ummulab: Ummulab) -> None:
    done = ummulab("explain", "--vm", running.vm, "--tid", "0x77", "--va", "0x1000", "--access", "w")
    assert done.status == 3, done.stderr
    assert "device" in done.stdout.lower()
    assert "refused" in done.stdout.lower() or "invalid" in done.stdout.lower()


def test_console_is_a_second_terminal(running: pexpect.spawn) -> None:
    second = pexpect.spawn(LAUNCHER, ["console", running.vm], encoding="utf-8", timeout=LIMIT)
    second.expect("ummulab:~# ")
    second.sendline("echo from the $((1+1))nd")
    second.expect("from the 2nd")
    second.send("\x1d")
    second.expect(pexpect.EOF)
    second.close()
    assert second.exitstatus == 0
    running.expect("from the 2nd")
    running.expect("ummulab:~# ")
    assert "here" in command(running, "echo here")


def test_qemu_killed_under_run_is_one_line(images: Images) -> None:
    child = pexpect.spawn(LAUNCHER, ["run", "--memory", "111"], encoding="utf-8", timeout=LIMIT)
    child.expect(r"ummulab:~# ")
    (pid,) = qemus("size=111M")
    os.kill(pid, signal.SIGKILL)
    child.expect(r"ummulab: error: QEMU ended \(.*SIGKILL.*\)")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


# -- bench --------------------------------------------------------------------------------------


def test_bench_vm_rows(ummulab: Ummulab) -> None:
    done = ummulab("bench", "vm", "--repeat", "1", "--json")
    rows = json.loads(done.stdout)
    assert done.status == 0
    assert {row["name"] for row in rows} >= {"boot", "exec", "clone", "test_overhead"}
    assert all(set(row) == {"name", "value", "unit", "baseline", "ratio"} for row in rows)
    assert all(row["value"] > 0 and row["unit"] == "s" for row in rows)
