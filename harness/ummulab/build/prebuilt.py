# SPDX-License-Identifier: GPL-2.0-or-later
"""Prebuilt images: one archive per guest architecture, made by ``ummulab images make``.

The archive holds manifest.json first and then the files that it lists.  Identical inputs give an
identical archive: names are sorted, owners are 0, times are 0, and one zstd thread packs it.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ummulab.build import Images, host, store
from ummulab.build.arch import build_arch, host_arch
from ummulab.build.inputs import Inputs
from ummulab.build.pipeline import Pipeline, images_of
from ummulab.build.progress import Reporter
from ummulab.errors import UserError

FORMAT = 1
KIND = "ummulab-images"
LEVEL = 12
MANIFEST_LIMIT = 1 << 20
#: Libraries that QEMU is linked with, beyond libc; package names by Debian release.
RUNTIME = {
    "12": ("libglib2.0-0", "libfdt1", "zlib1g"),
    "13": ("libglib2.0-0t64", "libfdt1", "zlib1g"),
}


def archive_name(arch: str) -> str:
    """Name of an archive."""
    return f"ummulab-{arch}.tar.zst"


def make(arch: str, target: Path, reporter: Reporter) -> Path:
    """Build everything and pack it; the archive appears complete or not at all."""
    pipeline = Pipeline(arch, reporter)
    entries = pipeline.entries()
    files = _contents(entries)
    images = images_of(arch, {name: entry.path for name, entry in entries.items()}, entries)
    manifest = {
        "format": FORMAT,
        "kind": KIND,
        "arch": arch,
        "host": host_arch(),
        "built_on": host.host_id(),
        "hashes": images.hashes,
        "versions": images.versions,
        "files": {
            name: {
                "sha256": store.hash_file(path),
                "size": path.stat().st_size,
                "mode": 0o755 if path.stat().st_mode & 0o100 else 0o644,
            }
            for name, path in files.items()
        },
    }
    if not shutil.which("zstd"):
        host.require_packages(["zstd"], reporter)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create {target}: {error.strerror}") from None
    out = target / archive_name(arch)
    temporary = target / f".{out.name}.new"
    with reporter.step(f"packing {out}", 20):
        try:
            _pack(temporary, json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n", files, manifest)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    return out


def _contents(entries: dict[str, store.Entry]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for entry in entries.values():
        for name, facts in entry.manifest["files"].items():
            if "sha256" in facts:
                files[name] = entry.path / name
    return dict(sorted(files.items()))


def _pack(out: Path, manifest: bytes, files: dict[str, Path], facts: dict[str, Any]) -> None:
    with out.open("wb") as raw:
        packer = subprocess.Popen(
            ["zstd", "-q", f"-{LEVEL}", "-T1", "--check", "-c"], stdin=subprocess.PIPE, stdout=raw
        )
        assert packer.stdin is not None
        try:
            with tarfile.open(fileobj=packer.stdin, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
                tar.addfile(_member(store.MANIFEST, len(manifest), 0o644), io.BytesIO(manifest))
                for name, path in files.items():
                    with path.open("rb") as file:
                        tar.addfile(_member(name, path.stat().st_size, facts["files"][name]["mode"]), file)
            packer.stdin.close()
            status = packer.wait(timeout=600)
        except BaseException as error:
            packer.kill()
            packer.wait()
            if isinstance(error, OSError):
                raise UserError(f"cannot write {out}: {error.strerror}") from None
            raise
    if status:
        raise UserError(f"cannot write {out}: zstd ended with status {status}: is the disk full?")


def _member(name: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member


def use(folder: Path, arch: str, reporter: Reporter) -> Images:
    """The images of one architecture from a folder of archives, unpacked once into the cache."""
    program = build_arch(arch).qemu
    archive = folder / archive_name(arch)
    if not archive.is_file():
        what = "has no " + archive.name if folder.is_dir() else "is not a folder"
        raise UserError(
            f"UMMULAB_IMAGES={folder} {what}", hint="'make images' makes it, on a machine that can build"
        )
    stat = archive.stat()
    inputs = Inputs("prebuilt", arch)
    inputs.add("archive", f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}")

    def unpack(target: Path) -> dict[str, str]:
        if not shutil.which("zstd"):
            host.require_packages(["zstd"], reporter)
        host.require_disk(stat.st_size * 5 / host.GIB, f"unpacking {archive}")
        with reporter.step(f"unpacking {archive}", 5):
            manifest = unpack_archive(archive, arch, target)
        check_runs(target / program, reporter)
        return {str(name): str(value) for name, value in manifest["versions"].items()}

    entry = store.get(inputs, unpack, reporter)
    parts = ("qemu", "kernel", "image")
    return images_of(arch, dict.fromkeys(parts, entry.path), dict.fromkeys(parts, entry))


@contextmanager
def _unpacked(archive: Path) -> Iterator[IO[bytes]]:
    with subprocess.Popen(
        ["zstd", "-q", "-d", "-c", str(archive)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield process.stdout
            # What follows the archive's end marker must be read as well, or a damaged tail goes unseen.
            while process.stdout.read(1 << 20):
                pass
            message = process.stderr.read().decode(errors="replace").strip()
            if process.wait(timeout=60):
                raise UserError(
                    f"{archive}: damaged: {message.splitlines()[-1] if message else 'zstd failed'}"
                )
        finally:
            process.kill()


def unpack_archive(archive: Path, arch: str, target: Path) -> dict[str, Any]:
    """Unpack and check everything against the manifest; any difference refuses the whole archive."""
    try:
        with _unpacked(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            members = iter(tar)
            manifest = _read_manifest(archive, arch, tar, next(members, None))
            missing = dict(manifest["files"])
            for member in members:
                facts = missing.pop(member.name, None)
                if facts is None or not member.isfile():
                    raise UserError(f"{archive}: {member.name!r} is not in its manifest")
                _unpack_file(archive, tar, member, facts, target)
    except tarfile.TarError as error:
        raise UserError(f"{archive}: damaged: {error}", hint="make it again: make images") from None
    if missing:
        raise UserError(f"{archive}: incomplete: {', '.join(sorted(missing))} is missing")
    return manifest


def _read_manifest(
    archive: Path, arch: str, tar: tarfile.TarFile, member: tarfile.TarInfo | None
) -> dict[str, Any]:
    if member is None or member.name != store.MANIFEST or not member.isfile() or member.size > MANIFEST_LIMIT:
        raise UserError(
            f"{archive}: not an archive of 'ummulab images make': it does not begin with a manifest"
        )
    content = tar.extractfile(member)
    assert content is not None
    try:
        manifest = json.loads(content.read())
        kind, version = manifest["kind"], manifest["format"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{archive}: its manifest cannot be read") from None
    if kind != KIND or version != FORMAT:
        raise UserError(f"{archive}: format {kind} {version}, this ummulab knows {KIND} {FORMAT}")
    wrong = [
        f"{what} {manifest.get(name)}, wanted {wanted}"
        for name, what, wanted in (("arch", "guest", arch), ("host", "host", host_arch()))
        if manifest.get(name) != wanted
    ]
    if wrong:
        raise UserError(f"{archive}: made for another architecture: {'; '.join(wrong)}")
    if not _sane(manifest, build_arch(arch).qemu):
        raise UserError(f"{archive}: its manifest does not list what a VM needs")
    return dict(manifest)


def _sane(manifest: dict[str, Any], program: str) -> bool:
    files, versions = manifest.get("files"), manifest.get("versions")
    if not isinstance(files, dict) or not isinstance(versions, dict):
        return False
    for name, facts in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or name == store.MANIFEST:
            return False
        if not isinstance(facts, dict) or not isinstance(facts.get("sha256"), str):
            return False
        if not isinstance(facts.get("size"), int) or facts.get("mode") not in (0o644, 0o755):
            return False
    return {program, "kernel", "initrd"} <= set(files)


def _unpack_file(
    archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, facts: dict[str, Any], target: Path
) -> None:
    path = target / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None
    digest = hashlib.sha256()
    try:
        with path.open("wb") as out:
            while data := content.read(1 << 20):
                digest.update(data)
                out.write(data)
    except OSError as error:
        raise UserError(f"cannot unpack {archive}: {error.strerror}") from None
    if member.size != facts["size"] or digest.hexdigest() != facts["sha256"]:
        raise UserError(
            f"{archive}: {member.name} has not the hash of the manifest",
            hint="the archive was damaged or changed: make it again",
        )
    path.chmod(facts["mode"])


def check_runs(program: Path, reporter: Reporter) -> None:
    """See that a QEMU built elsewhere starts here; install the libraries it needs if they are missing."""
    problem = start_problem(program)
    if problem and "error while loading shared libraries" in problem:
        packages = RUNTIME.get(host.os_release().get("VERSION_ID", ""), RUNTIME["13"])
        reporter.note(f"the prebuilt QEMU needs libraries: {problem.rsplit(': ', 3)[-3]}")
        host.require_packages(packages, reporter)
        problem = start_problem(program)
    if not problem:
        return
    if "GLIBC" in problem:
        raise UserError(
            "the prebuilt QEMU was built on a newer Debian than this one",
            hint="make the images on Debian 12, or build here (without UMMULAB_IMAGES)",
        )
    raise UserError(f"the prebuilt QEMU does not start here: {problem}")


def start_problem(program: Path) -> str | None:
    """The first line of what is wrong with a program, or None."""
    try:
        done = subprocess.run(
            [str(program), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return next(iter(done.stderr.strip().splitlines()), f"status {done.returncode}")
