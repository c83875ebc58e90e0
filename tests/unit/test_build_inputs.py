# SPDX-License-Identifier: GPL-2.0-or-later
"""Keys follow every input, and laying out sources touches only what changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ummulab.build import image, kernel, qemu
from ummulab.build.arch import ARCHES, build_arch, guest_arch
from ummulab.build.inputs import Inputs, SourceFile, lay_out, read_sources
from ummulab.errors import UsageError

ARM = ARCHES["aarch64"]
SOURCE = qemu.QemuSource("10.0.0", "10.0.0 abc", Path("x.tar.xz"), None)


def qemu_key(**changes: object) -> str:
    facts: dict[str, object] = {"arch": ARM, "source": SOURCE, "files": qemu.overlay_files(), "variant": ""}
    return qemu.inputs_for(**{**facts, **changes}).key  # type: ignore[arg-type]


def changed(name: str, data: bytes | None = None, executable: bool = False) -> dict[str, SourceFile]:
    files = dict(qemu.overlay_files())
    files[name] = SourceFile(data if data is not None else files[name].data, executable)
    return files


def test_qemu_key_is_stable() -> None:
    assert qemu_key() == qemu_key()


def test_qemu_key_follows_every_input() -> None:
    keys = [
        qemu_key(),
        qemu_key(arch=ARCHES["x86_64"]),
        qemu_key(variant="asan"),
        qemu_key(variant="fuzz"),
        qemu_key(source=qemu.QemuSource("10.0.0", "10.0.0 abd", Path("x.tar.xz"), None)),
        qemu_key(files=changed("qemu-device/hw/ummu/ummu.c", b"/* edited */\n")),
        qemu_key(files=changed("qemu-device/hw/ummu/ummu.c", executable=True)),
        qemu_key(files=changed("qemu-device/hw/ummu/new.c", b"")),
        qemu_key(files=changed("qemu-device/configs/aarch64-softmmu/ummulab.mak", b"")),
        # One configuration for both: what one target selects is compiled for the other as well.
        qemu_key(files=changed("qemu-device/configs/x86_64-softmmu/ummulab.mak", b"")),
    ]
    assert len(set(keys)) == len(keys)


def test_files_are_read_in_order_without_editor_leftovers(tmp_path: Path) -> None:
    for name in ("b.c", "a.c", "a.c.orig", ".a.c.swp", "sub/c.h", "__pycache__/x.pyc"):
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_text(name)
    assert list(read_sources(["d"], tmp_path)) == ["d/a.c", "d/b.c", "d/sub/c.h"]


def test_lay_out_touches_only_changes_and_removes_only_its_own(tmp_path: Path) -> None:
    files = {"d/a": SourceFile(b"1", False), "d/b": SourceFile(b"2", True)}
    assert lay_out(files, tmp_path, "d/")
    (tmp_path / "a.o").touch()
    before = (tmp_path / "a").stat().st_mtime_ns
    assert not lay_out(files, tmp_path, "d/")
    assert (tmp_path / "a").stat().st_mtime_ns == before
    assert (tmp_path / "b").stat().st_mode & 0o111
    assert lay_out({"d/b": SourceFile(b"3", True)}, tmp_path, "d/")
    assert not (tmp_path / "a").exists() and (tmp_path / "a.o").exists()
    assert (tmp_path / "b").read_bytes() == b"3"


def test_unknown_architecture_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUEST_ARCH", "riscv64")
    with pytest.raises(UsageError, match="riscv64.*aarch64, x86_64"):
        guest_arch()


@pytest.mark.parametrize("arch", list(ARCHES))
@pytest.mark.parametrize("debug", [False, True])
def test_every_fragment_exists_and_asks_for_something(arch: str, debug: bool) -> None:
    names = kernel.fragments(build_arch(arch), debug)
    files = read_sources(names)
    wanted = kernel.merged(files, names)
    assert wanted["CONFIG_DEVICE_PRIVATE"] == "y"
    assert ("CONFIG_KASAN" in wanted) == debug


def test_options_that_kconfig_dropped_are_found() -> None:
    wanted = kernel.parse_config('CONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D="x"\n# a comment\n')
    assert wanted == {"CONFIG_A": "y", "CONFIG_B": "m", "CONFIG_C": "n", "CONFIG_D": '"x"'}
    got = kernel.parse_config('CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\nCONFIG_D="x"\n')
    assert kernel.lost_options(wanted, got) == ["CONFIG_B=m (is n)", "CONFIG_C=n (is y)"]


@pytest.mark.parametrize("arch", list(ARCHES.values()))
def test_image_recipe_is_valid(arch: object) -> None:
    files = read_sources([image.FOLDER])
    packages = image.parse_recipe(files[image.RECIPE_FILE].data, arch)  # type: ignore[arg-type]
    assert "busybox-static" in packages and all(packages.values())
    assert Inputs("a", "b").key != Inputs("a", "c").key
