# SPDX-License-Identifier: GPL-2.0-or-later
"""Full disks, damaged templates, killed owners: a clear line, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LAUNCHER
from test_cli import qemus, wait_until
from ummulab.build import Images
from ummulab.build.housekeeping import TEMPLATES
from ummulab.build.paths import cache_dir
from ummulab.pytest_plugin.lab import VmFactory
from ummulab.vm import VmConfig
from ummulab.vm.errors import StateError
from ummulab.vm.state import load_state
from ummulab.vm.template import Templates

CONFIG = VmConfig(arch=os.environ.get("GUEST_ARCH", "aarch64"), memory_mib=64)


@pytest.mark.needs("root", "unshare")
def test_a_full_disk_is_one_line_and_leaves_no_half_template() -> None:
    folder = f"'{cache_dir() / TEMPLATES}'"
    script = (
        f"mkdir -p {folder} && mount -t tmpfs -o size=3m tmpfs {folder} || exit 99;"
        f"'{LAUNCHER}' exec --memory 97 -- true; status=$?; ls -A {folder}; exit $status"
    )
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode not in (0, 99), done.stderr
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr, done.stderr
    assert [name for name in done.stdout.split() if not name.endswith(".lock")] == []
    assert qemus("size=97M") == []


@pytest.fixture(scope="module")
def template(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real template of a small VM."""
    return Templates(images, tmp_path_factory.mktemp("templates")).get(CONFIG).path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[next(i for i in range(len(data) // 2, len(data)) if data[i])] ^= 0x40
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_an_untouched_copy_is_good(images: Images, template: Path, tmp_path: Path) -> None:
    assert load_state(shutil.copytree(template, tmp_path / "copy"), images.hashes).config == CONFIG


@pytest.mark.parametrize("name", ["state", "ram", "meta.json"])
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flip", "cut", "remove"])
def test_a_damaged_template_is_refused(
    images: Images, template: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    copy = shutil.copytree(template, tmp_path / "copy")
    (copy / name).chmod(0o644)
    damage(copy / name)
    with pytest.raises(StateError):
        load_state(copy, images.hashes)


def test_a_damaged_template_is_made_again(images: Images, template: Path, tmp_path: Path) -> None:
    templates = Templates(images, tmp_path)
    copy = shutil.copytree(template, tmp_path / templates.key(CONFIG))
    (copy / "ram").chmod(0o644)
    flip(copy / "ram")
    with templates.clone(CONFIG) as vm:
        assert vm.run("echo good", check=True).text == "good\n"


def test_a_template_of_other_images_is_refused(images: Images, vm_factory: VmFactory, tmp_path: Path) -> None:
    vm_factory().save(tmp_path / "saved")
    hashes = {**images.hashes, "kernel": "0" * 64}
    with pytest.raises(StateError, match="made with another kernel"):
        load_state(tmp_path / "saved", hashes)


def test_pytest_killed_leaves_no_qemu(tmp_path: Path) -> None:
    """VMs of a test run end with it, whatever way it ends."""
    test = tmp_path / "test_long.py"
    test.write_text(
        "def test_long(vm_factory):\n"
        "    vm_factory(memory_mib=93)\n"
        "    vm_factory(memory_mib=93).run('sleep 1000', 900)\n"
    )
    argv = [LAUNCHER, "pytest", "-q", "-n0", "-c", "/dev/null", "-p", "ummulab.pytest_plugin", str(test)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: len(qemus("size=93M")) == 2, "both VMs of the test to run")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    wait_until(lambda: not qemus("size=93M"), "the VMs to end with pytest")
