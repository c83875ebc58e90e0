# SPDX-License-Identifier: GPL-2.0-or-later
"""Prebuilt images: what is packed comes back, and anything else is refused."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ummulab.build import host, prebuilt, store
from ummulab.build.arch import host_arch
from ummulab.build.progress import QuietReporter
from ummulab.errors import UserError

ARCH = "aarch64"
PROGRAM = b"#!/bin/sh\necho QEMU emulator version 10\n"
FILES = {"qemu-system-aarch64": PROGRAM, "kernel": b"kernel", "initrd": b"initrd", "share/VERSION": b"10\n"}
Edit = Callable[[dict[str, Any], dict[str, bytes]], None]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMMULAB_CACHE", str(tmp_path / "cache"))
    if not shutil.which("zstd"):
        host.require_packages(["zstd"], QuietReporter())


def manifest_of(files: dict[str, bytes], tmp_path: Path) -> dict[str, Any]:
    facts = {}
    for name, data in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        mode = 0o755 if name.startswith("qemu") else 0o644
        facts[name] = {"sha256": store.hash_file(path), "size": len(data), "mode": mode}
    return {
        "format": prebuilt.FORMAT,
        "kind": prebuilt.KIND,
        "arch": ARCH,
        "host": host_arch(),
        "versions": {"qemu": "10"},
        "files": facts,
    }


def pack(tmp_path: Path, edit: Edit | None = None) -> Path:
    """An archive as ``images make`` writes it; ``edit`` may change manifest and files after hashing."""
    files = dict(FILES)
    manifest = manifest_of(files, tmp_path)
    if edit:
        edit(manifest, files)
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        head = json.dumps(manifest).encode()
        tar.addfile(prebuilt._member("manifest.json", len(head), 0o644), io.BytesIO(head))
        for name, data in files.items():
            tar.addfile(prebuilt._member(name, len(data), 0o644), io.BytesIO(data))
    folder = tmp_path / "images"
    folder.mkdir(exist_ok=True)
    packed = subprocess.run(
        ["zstd", "-q", "-c", "--check"], input=raw.getvalue(), stdout=subprocess.PIPE, check=True
    )
    (folder / prebuilt.archive_name(ARCH)).write_bytes(packed.stdout)
    return folder


def test_use_unpacks_once(tmp_path: Path) -> None:
    folder = pack(tmp_path)
    images = prebuilt.use(folder, ARCH, QuietReporter())
    assert images.kernel.read_bytes() == b"kernel" and images.initrd.read_bytes() == b"initrd"
    assert images.qemu.stat().st_mode & 0o111
    assert (images.qemu_datadir / "VERSION").exists()
    assert images.versions == {"qemu": "10"} and set(images.hashes) == {"qemu", "kernel", "initrd"}
    stamp = images.kernel.stat().st_mtime_ns
    assert prebuilt.use(folder, ARCH, QuietReporter()).kernel.stat().st_mtime_ns == stamp


def refuse(tmp_path: Path, edit: Edit | None, says: str) -> None:
    folder = pack(tmp_path, edit)
    with pytest.raises(UserError, match=says) as caught:
        prebuilt.use(folder, ARCH, QuietReporter())
    assert "\n" not in caught.value.message
    entries = store.entries_dir()
    assert not entries.exists() or list(entries.iterdir()) == []


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda m, f: f.update(kernel=b"KERNEL"), "kernel has not the hash of the manifest"),
        (lambda m, f: f.update(kernel=b"kernel2"), "kernel has not the hash of the manifest"),
        (lambda m, f: f.pop("initrd"), "incomplete: initrd is missing"),
        (lambda m, f: f.update(extra=b""), "'extra' is not in its manifest"),
        (lambda m, f: m.update(format=99), "format ummulab-images 99"),
        (lambda m, f: m.update(kind="holiday"), "format holiday 1"),
        (lambda m, f: m.pop("format"), "its manifest cannot be read"),
        (lambda m, f: m.update(arch="x86_64"), "guest x86_64, wanted aarch64"),
        (lambda m, f: m.update(host="s390x"), "host s390x"),
        (lambda m, f: m.update(files=[]), "does not list what a VM needs"),
        (lambda m, f: m["files"].pop("kernel"), "does not list what a VM needs"),
        (lambda m, f: m["files"].update({"../x": m["files"]["kernel"]}), "does not list what a VM needs"),
        (lambda m, f: m["files"]["kernel"].update(mode=0o4755), "does not list what a VM needs"),
        (lambda m, f: m["files"].update(kernel="x"), "does not list what a VM needs"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, edit: Edit, says: str) -> None:
    refuse(tmp_path, edit, says)


@pytest.mark.parametrize("where", [0, 20, -3])
def test_flipped_byte_is_refused(tmp_path: Path, where: int) -> None:
    archive = pack(tmp_path) / prebuilt.archive_name(ARCH)
    data = bytearray(archive.read_bytes())
    data[where] ^= 0x40
    archive.write_bytes(data)
    with pytest.raises(UserError, match=r"ummulab-aarch64\.tar\.zst"):
        prebuilt.use(archive.parent, ARCH, QuietReporter())


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_cut_archive_is_refused(tmp_path: Path, keep: int) -> None:
    archive = pack(tmp_path) / prebuilt.archive_name(ARCH)
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"ummulab-aarch64\.tar\.zst"):
        prebuilt.use(archive.parent, ARCH, QuietReporter())


def test_other_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / prebuilt.archive_name(ARCH)).write_bytes(b"hello\n" * 100)
    with pytest.raises(UserError, match="damaged|not an archive"):
        prebuilt.use(folder, ARCH, QuietReporter())


@pytest.mark.parametrize(("name", "says"), [("images", "has no ummulab-x86_64"), ("none", "is not a folder")])
def test_missing_archive_is_one_line(tmp_path: Path, name: str, says: str) -> None:
    pack(tmp_path)
    with pytest.raises(UserError, match=says):
        prebuilt.use(tmp_path / name, "x86_64", QuietReporter())


def test_a_program_that_does_not_start_is_told(tmp_path: Path) -> None:
    def edit(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        files["qemu-system-aarch64"] = (
            b"#!/bin/sh\necho \"libc.so.6: version 'GLIBC_2.99' not found\" >&2; exit 1\n"
        )
        manifest.update(manifest_of(files, tmp_path))

    refuse(tmp_path, edit, "built on a newer Debian")


def test_packing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    manifest = manifest_of(FILES, tmp_path)
    head = json.dumps(manifest).encode()
    results = []
    for name in ("one", "two"):
        source = tmp_path / name
        shutil.copytree(tmp_path / "src", source)
        files = {file: source / file for file in sorted(FILES)}
        prebuilt._pack(tmp_path / f"{name}.zst", head, files, manifest)
        results.append((tmp_path / f"{name}.zst").read_bytes())
    assert results[0] == results[1]
    target = tmp_path / "out"
    target.mkdir()
    prebuilt.unpack_archive(tmp_path / "one.zst", ARCH, target)
    assert {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()} == set(FILES)
