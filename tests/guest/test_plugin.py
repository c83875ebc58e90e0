# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin in projects of its own, as another project would use it."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest
from conftest import LAUNCHER, Run, Ummulab
from ummulab.build import Images
from ummulab.build.paths import REPO

#: Tests at once; UMMULAB_LONG=1 makes them a hundred.
COUNT = 100 if os.environ.get("UMMULAB_LONG") else 16
RunTests = Callable[..., Run]


@pytest.fixture
def run_tests(ummulab: Ummulab, tmp_path: Path, images: Images) -> RunTests:
    """Runs a test file in a project of its own; returns what pytest said."""
    assert images.kernel.exists()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p ummulab.pytest_plugin -q -rs\n")

    def run(text: str, *options: str) -> Run:
        (tmp_path / "test_it.py").write_text(text)
        return ummulab("pytest", "-c", str(tmp_path / "pytest.ini"), *options, str(tmp_path / "test_it.py"))

    return run


def test_the_sample_project(ummulab: Ummulab) -> None:
    folder = REPO / "examples/pytest-sample"
    done = ummulab(
        "pytest", "-q", "-p", "no:cacheprovider", "-c", str(folder / "pyproject.toml"), str(folder)
    )
    assert done.status == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_failure_shows_the_vm(run_tests: RunTests, tmp_path: Path) -> None:
    text = (
        "def test_it(vm):\n"
        "    vm.run('echo marker-in-the-log >/dev/kmsg; ummu-demo zero-copy', check=True)\n"
        "    assert False\n"
    )
    done = run_tests(text, f"--junitxml={tmp_path}/junit.xml")
    assert done.status == 1
    for wanted in (
        "VM: kernel log",
        "marker-in-the-log",
        "VM: QMP",
        "migrate-incoming",
        "VM: device counters",
        "responses-fault=4",
        "VM: what the UMMU sees",
        "EVT_P_PERMISSION",
        "--keep-vm --guest-arch=",
        "test_it.py::test_it",
    ):
        assert wanted in done.stdout, wanted
    properties = {p.get("name"): p.get("value") for p in ET.parse(tmp_path / "junit.xml").iter("property")}
    assert {"version_qemu", "sha256_kernel", "sha256_initrd", "seconds_boot", "seconds_exec"} <= set(
        properties
    )
    assert float(properties["seconds_exec"] or 0) > 0


def test_a_panic_is_shown_with_its_log(run_tests: RunTests) -> None:
    done = run_tests("def test_it(vm):\n    vm.run('echo c >/proc/sysrq-trigger')\n")
    assert done.status == 1
    assert "GuestPanic" in done.stdout
    assert "sysrq triggered crash" in done.stdout


def test_markers(run_tests: RunTests) -> None:
    text = (
        "import pytest\n"
        "@pytest.mark.needs('root')\ndef test_root(images): pass\n"
        "@pytest.mark.needs('shared_translation')\ndef test_shared(images): pass\n"
        "@pytest.mark.seed(0x77)\ndef test_seed(seed): assert seed == 0x77\n"
        "@pytest.mark.icount\ndef test_icount(vm): assert vm.config.icount\n"
    )
    done = run_tests(text, "--strict-markers")
    assert done.status == 0, done.stdout
    skipped = run_tests(text, "--guest-arch=x86_64", "-k", "shared")
    assert "needs shared_translation: the UMMU can walk a process's own page table only if" in skipped.stdout


def test_an_unknown_need_is_an_error_of_the_test(run_tests: RunTests) -> None:
    done = run_tests("import pytest\n@pytest.mark.needs('wings')\ndef test_it(): pass\n")
    assert done.status != 0
    assert "needs('wings'): unknown" in done.stdout


def test_seed_option_and_its_hint(run_tests: RunTests) -> None:
    done = run_tests("def test_it(seed, vm):\n    assert seed == 0\n", "--seed=0x1234")
    assert "again: --seed 0x1234" in done.stdout
    assert "--seed=0x1234" in done.stdout.partition("again, and then the VM's prompt")[2]


def test_log_folder(run_tests: RunTests, tmp_path: Path) -> None:
    run_tests(
        "def test_it(vm): vm.run('echo hello >/dev/kmsg; sleep 0.2')\n", f"--vm-log-dir={tmp_path}/logs"
    )
    (folder,) = (tmp_path / "logs").iterdir()
    assert "hello" in (folder / "kernel.log").read_text()


def test_two_vms_and_a_saved_one(run_tests: RunTests) -> None:
    text = (
        "from ummulab.vm.state import load_state\n"
        "def test_it(vm_factory, tmp_path):\n"
        "    one, two = vm_factory(), vm_factory(memory_mib=128)\n"
        "    one.run('touch /tmp/x', check=True)\n"
        "    one.save(tmp_path / 's')\n"
        "    again = vm_factory(state=load_state(tmp_path / 's', one.images.hashes))\n"
        "    assert again.run('test -e /tmp/x').status == 0\n"
        "    assert two.run('test -e /tmp/x').status == 1\n"
    )
    assert run_tests(text).status == 0


def test_keep_vm_gives_the_prompt(tmp_path: Path, images: Images) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p ummulab.pytest_plugin\n")
    (tmp_path / "test_it.py").write_text(
        "def test_it(vm):\n    vm.run('echo kept >/tmp/kept')\n    assert False\n"
    )
    argv = ["pytest", "-c", str(tmp_path / "pytest.ini"), "-n0", "-s", "--keep-vm", str(tmp_path)]
    child = pexpect.spawn(LAUNCHER, argv, encoding="utf-8", timeout=60)
    child.expect("the VM of the failed test")
    child.expect("ummulab:~# ")
    child.sendline("cat /tmp/kept")
    child.expect("kept\r\n")
    child.send("\x1d")
    child.expect("1 failed")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


def test_keep_vm_without_a_terminal_says_so(run_tests: RunTests) -> None:
    done = run_tests("def test_it(vm):\n    assert False\n", "--keep-vm", "-n0")
    assert "standard input is not a terminal" in done.stderr + done.stdout


def test_many_tests_in_workers_leave_nothing(
    run_tests: RunTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import pytest\n"
        f"@pytest.mark.parametrize('i', range({COUNT}))\n"
        "def test_it(vm_factory, i):\n"
        "    assert vm_factory(memory_mib=91).run('echo $((6*7))', check=True).text == '42\\n'\n"
    )
    from test_cli import qemus

    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    done = run_tests(text, "-n2")
    assert f"{COUNT} passed" in done.stdout, done.stdout[-2000:]
    assert qemus("size=91M") == []
    assert [path for path in (tmp_path / "run").rglob("*") if path.name != "ummulab"] == []
