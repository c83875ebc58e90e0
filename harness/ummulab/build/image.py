# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's root file system: an initramfs from Debian packages and our own parts."""

from __future__ import annotations

import fnmatch
import io
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

from ummulab.build import store
from ummulab.build.arch import BuildArch
from ummulab.build.cpio import Tree
from ummulab.build.debian import Download, Fetcher
from ummulab.build.inputs import Inputs, SourceFile, read_sources
from ummulab.build.progress import Reporter
from ummulab.errors import UserError

RECIPE = 1
FOLDER = "guest/image"
FILES = f"{FOLDER}/files/"
RECIPE_FILE = f"{FOLDER}/image.toml"
MERGED = ("bin", "sbin", "lib", "lib64")
FOLDERS = ("dev", "proc", "sys", "run", "tmp", "root", "mnt")
MODULES = "usr/lib/ummulab/modules"
_APPLETS = re.compile(rb"(?:\[\0)?\[\[\0(?:[a-z0-9_.-]+\0){5}")


def ensure(
    arch: BuildArch, guest: store.Entry, fetcher: Fetcher, reporter: Reporter, kind: str
) -> store.Entry:
    """The initramfs, from the cache or written now."""
    files = read_sources([FOLDER])
    packages = parse_recipe(files[RECIPE_FILE].data, arch)
    downloads = {name: fetcher.get(f"{name}:{arch.debian}") for name in packages}
    inputs = Inputs(kind, arch.name)
    inputs.add("recipe", RECIPE)
    inputs.add("guest", guest.key)
    inputs.add("packages", {name: got.identity for name, got in downloads.items()})
    inputs.add_files(files)

    def build(target: Path) -> dict[str, str]:
        with reporter.step("writing the guest image", 5):
            tree = make_tree(files, packages, downloads, guest.path)
            (target / "initrd").write_bytes(tree.archive())
        return {name: got.version for name, got in downloads.items()}

    return store.get(inputs, build, reporter)


def parse_recipe(data: bytes, arch: BuildArch) -> dict[str, list[str]]:
    """Package names and the patterns of their files."""
    try:
        recipe = tomllib.loads(data.decode())
        return {
            str(package["name"]): [str(name).format(triplet=arch.triplet) for name in package["files"]]
            for package in recipe["package"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{RECIPE_FILE}: {type(error).__name__}: {error}") from None


def make_tree(
    files: dict[str, SourceFile], packages: dict[str, list[str]], downloads: dict[str, Download], guest: Path
) -> Tree:
    """Put everything in its place."""
    tree = Tree()
    tree.directory("usr/bin")
    tree.directory("usr/lib")
    # Merged /usr, as Debian has it; sbin is bin, too.
    tree.link("usr/sbin", "bin")
    tree.link("usr/lib64", "lib")
    for name in MERGED:
        tree.link(name, f"usr/{'bin' if name == 'sbin' else name}")
    for name in FOLDERS:
        tree.directory(name, 0o1777 if name == "tmp" else 0o755)
    tree.char_device("dev/console", 5, 1)
    tree.char_device("dev/null", 1, 3, 0o666)
    for name, patterns in packages.items():
        _add_package(tree, downloads[name], patterns)
    for name, file in files.items():
        if name.startswith(FILES):
            tree.file(place(name.removeprefix(FILES)), file.data, executable=file.executable)
    _add_guest(tree, guest)
    _add_applets(tree)
    tree.link("init", "usr/bin/busybox")
    return tree


def place(name: str) -> str:
    """Where a file goes with a merged /usr."""
    first, _, rest = name.partition("/")
    if first in MERGED and rest:
        name = f"usr/{first}/{rest}"
    for alias, real in (("usr/sbin/", "usr/bin/"), ("usr/lib64/", "usr/lib/")):
        if name.startswith(alias):
            return real + name.removeprefix(alias)
    return name


def _add_package(tree: Tree, download: Download, patterns: list[str]) -> None:
    deb = download.file(".deb")
    done = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(deb)], stdin=subprocess.DEVNULL, capture_output=True, timeout=300
    )
    if done.returncode:
        raise UserError(f"cannot unpack {deb.name}: {done.stderr.decode(errors='replace').strip()[:200]}")
    found = 0
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            # Older layouts have the same files without usr/.
            if not any(fnmatch.fnmatchcase(name, p) or f"usr/{name}" == p for p in patterns):
                continue
            if member.issym():
                tree.link(place(name), member.linkname)
            elif member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                tree.file(place(name), content.read(), executable=bool(member.mode & 0o111))
                found += 1
    if not found:
        raise UserError(f"{RECIPE_FILE}: none of {', '.join(patterns)} is in {deb.name}")


def _add_guest(tree: Tree, guest: Path) -> None:
    for path in sorted(guest.rglob("*")):
        name = str(path.relative_to(guest))
        if name == store.MANIFEST or path.name.startswith("."):
            continue
        if path.suffix == ".ko":
            tree.file(f"{MODULES}/{path.name}", path.read_bytes())
        elif path.is_symlink():
            tree.link(place(name), str(path.readlink()))
        elif path.is_file() and not _for_building(name):
            tree.file(place(name), path.read_bytes(), executable=bool(path.stat().st_mode & 0o111))


def _for_building(name: str) -> bool:
    return name.endswith((".a", ".h", ".pc")) or "/include/" in name or "/share/man/" in name


def busybox_applets(program: bytes) -> list[str]:
    """The applets that a busybox has, read from its own name table.

    The program cannot be asked on a host of another architecture, and asking it in the guest, at every
    boot, would cost more than all other start-up work.  The table is a sorted list of C strings from "[" on.
    """
    # The shell's own built-ins make a similar, shorter table.
    names = max((_sorted_names(program, m.start()) for m in _APPLETS.finditer(program)), key=len, default=[])
    if not names:
        raise UserError("busybox-static: no applet table found in the program")
    missing = {"sh", "init", "mount", "insmod", "setsid", "poweroff"} - set(names)
    if missing:
        raise UserError(f"busybox-static: no applet {', '.join(sorted(missing))}")
    return names


def _sorted_names(program: bytes, start: int) -> list[str]:
    """The C strings from ``start`` on that look like applet names and keep the table's order."""
    names: list[str] = []
    while True:
        end = program.find(b"\0", start)
        name = program[start : max(end, start)].decode("ascii", errors="replace")
        if not re.fullmatch(r"[a-z0-9_.\[-]+", name) or (names and name <= names[-1]):
            return names
        names.append(name)
        start = end + 1


def _add_applets(tree: Tree) -> None:
    for name in busybox_applets(tree.nodes["usr/bin/busybox"].data):
        if f"usr/bin/{name}" not in tree.nodes:
            tree.link(f"usr/bin/{name}", "busybox")
