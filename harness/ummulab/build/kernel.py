# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest kernel: Debian's Linux source and the fragments in guest/kernel."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ummulab.build import host, process, sources, store
from ummulab.build.arch import BuildArch, build_arch
from ummulab.build.debian import Download, Fetcher
from ummulab.build.inputs import Inputs, SourceFile, read_sources, sha256
from ummulab.build.locks import locked
from ummulab.build.paths import writable
from ummulab.build.progress import Reporter, Step, jobs, scaled
from ummulab.errors import UserError

RECIPE = 2
SOURCE_PACKAGE = "linux-source-6.12"
FOLDER = "guest/kernel"
PACKAGES = ("make", "gcc", "libc6-dev", "flex", "bison", "bc", "perl", "xz-utils", "libelf-dev", "patch")
#: Compiled and linked objects of a full build, for the progress bar.
OBJECTS = {"aarch64": 1200, "x86_64": 1350}
#: Measured, with room to spare.
SOURCE_GIB = 1.9
BUILD_GIB = 0.3
DEBUG_BUILD_GIB = 1.0
#: The same kernel must come out of the same inputs.
STABLE_ENV = {
    "KBUILD_BUILD_TIMESTAMP": "@0",
    "KBUILD_BUILD_USER": "ummulab",
    "KBUILD_BUILD_HOST": "ummulab",
    "KBUILD_BUILD_VERSION": "1",
}
_SET = re.compile(r"^(CONFIG_\w+)=(.*)$")
_UNSET = re.compile(r"^# (CONFIG_\w+) is not set$")


@dataclass(frozen=True)
class KernelTree:
    """A configured and built kernel, for building modules against."""

    source: Path
    output: Path
    make: tuple[str, ...]  #: variables for make


def parse_config(text: str) -> dict[str, str]:
    """Kconfig lines as a table; "n" for what is not set."""
    table: dict[str, str] = {}
    for line in text.splitlines():
        if match := _SET.match(line.strip()):
            table[match[1]] = match[2]
        elif match := _UNSET.match(line.strip()):
            table[match[1]] = "n"
    return table


def lost_options(wanted: dict[str, str], config: dict[str, str]) -> list[str]:
    """What was asked for and did not come out: Kconfig silently drops what lacks a dependency."""
    return [
        f"{name}={value} (is {config.get(name, 'n')})"
        for name, value in sorted(wanted.items())
        if config.get(name, "n") != value
    ]


def fragments(arch: BuildArch, debug: bool) -> list[str]:
    """The fragments in the order in which they are laid over each other."""
    names = ["base.config", f"{arch.name}.config", *(["debug.config"] if debug else [])]
    return [f"{FOLDER}/{name}" for name in names]


def merged(files: dict[str, SourceFile], names: Iterable[str]) -> dict[str, str]:
    """All fragments as one table; a later one wins."""
    table: dict[str, str] = {}
    for name in names:
        table |= parse_config(files[name].data.decode())
    return table


class Kernel:
    """One kernel variant: its key, its artifact and its work folders."""

    def __init__(self, arch_name: str, fetcher: Fetcher, reporter: Reporter, *, debug: bool = False) -> None:
        self.arch = build_arch(arch_name)
        self._reporter = reporter
        self._debug = debug
        self._download: Download = fetcher.get(SOURCE_PACKAGE)
        names = fragments(self.arch, debug)
        self._files = read_sources(names)
        self._wanted = merged(self._files, names)
        self._folder = sources.work_dir() / f"linux-{sha256(self._download.identity.encode())[:12]}"
        self.inputs = self._inputs()

    def _inputs(self) -> Inputs:
        inputs = Inputs("kernel-debug" if self._debug else "kernel", self.arch.name)
        inputs.add("recipe", RECIPE)
        inputs.add("source", self._download.identity)
        inputs.add("host", host.host_id())
        inputs.add("config", self._wanted)
        return inputs

    @property
    def _variant(self) -> str:
        return f"{self.arch.name}-debug" if self._debug else self.arch.name

    def ensure(self) -> store.Entry:
        """The kernel, from the cache or built now."""

        def build(target: Path) -> dict[str, str]:
            with self.tree() as tree:
                shutil.copy2(tree.output / self.arch.image, target / "kernel")
                for name in (".config", "System.map"):
                    shutil.copy2(tree.output / name, target / name.lstrip("."))
                return {"kernel": (tree.output / "include/config/kernel.release").read_text().strip()}

        return store.get(self.inputs, build, self._reporter)

    @contextmanager
    def tree(self) -> Iterator[KernelTree]:
        """The built tree; made again if an earlier build was interrupted or its folder was removed.

        It is locked meanwhile: another checkout with other fragments builds in the same folder.
        """
        output = self._folder / f"build-{self._variant}"
        source = self._folder / "src"
        make = (f"ARCH={self.arch.kernel}", f"CROSS_COMPILE={self.arch.cross}")
        tree = KernelTree(source, output, make)
        with locked(f"{self._folder.name}-{self._variant}", self._reporter):
            if not self._built(output):
                self._build(tree)
            yield tree

    def _marker(self, output: Path) -> Path:
        return output / ".ummulab-built"

    def _built(self, output: Path) -> bool:
        try:
            return bool(json.loads(self._marker(output).read_text())["key"] == self.inputs.key)
        except (OSError, ValueError, KeyError):
            return False

    def _build(self, tree: KernelTree) -> None:
        unpacked = (tree.source / sources.COMPLETE).exists()
        need = (DEBUG_BUILD_GIB if self._debug else BUILD_GIB) + (0 if unpacked else SOURCE_GIB)
        host.require_disk(need, "building the guest kernel")
        host.require_packages([*PACKAGES, *self.arch.compiler_packages()], self._reporter)
        self.unpack_source()
        self._marker(writable(tree.output)).unlink(missing_ok=True)
        log = process.log_path(f"kernel-{self._variant}")
        make: list[str | Path] = ["make", "-C", tree.source, f"O={tree.output}", *tree.make]
        with self._reporter.step(f"configuring the guest kernel for {self._variant}", 20) as step:
            changed = self._configure(tree, make, log, step)
        # An option that changed is seen by most of the tree.
        fresh = changed or not (tree.output / self.arch.image).exists()
        seconds = scaled(900 if self._debug else 420) if fresh else 60
        with self._reporter.step(f"building the guest kernel for {self._variant}", seconds) as step:
            process.run(
                [*make, f"-j{jobs()}", Path(self.arch.image).name, "modules"],
                log,
                "building the guest kernel",
                step=step,
                env=STABLE_ENV,
                parse=process.counting(r"^\s+(CC|AS|AR|LD)\s", OBJECTS[self.arch.name]) if fresh else None,
            )
        self._marker(tree.output).write_text(json.dumps({"key": self.inputs.key}) + "\n")

    def unpack_source(self) -> Path:
        """The base source as a tree in the work folder."""
        script = (
            'dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "./usr/src/linux-source-*.tar.xz"'
            ' | tar -xJ --strip-components=1 -C "$OUT"'
        )
        archive = self._download.file(".deb")
        name = f"Linux {self._download.version}"
        with locked(self._folder.name, self._reporter):
            return sources.unpack(script, [archive], self._folder / "src", name, 60, self._reporter)

    def _configure(self, tree: KernelTree, make: list[str | Path], log: Path, step: Step) -> bool:
        """Make .config from the fragments; True if it is another one than before."""
        config = tree.output / ".config"
        log.unlink(missing_ok=True)
        # In a folder of its own: .config must change only when its content does, or all is built again.
        scratch = writable(tree.output.with_name(f"{tree.output.name}-config"))
        make = [part if not str(part).startswith("O=") else f"O={scratch}" for part in make]
        # allnoconfig with a preset: unlike tinyconfig and olddefconfig it leaves out what is on by default
        # (keyboards, EFI, IPv6 …) and only shows up when one of our options makes it visible.
        preset = scratch / "preset.config"
        lines = [f"# {k} is not set" if v == "n" else f"{k}={v}" for k, v in self._wanted.items()]
        preset.write_text("\n".join(lines) + "\n")
        process.run(
            [*make, "allnoconfig", f"KCONFIG_ALLCONFIG={preset}"],
            log,
            "configuring the guest kernel",
            step=step,
        )
        text = (scratch / ".config").read_text()
        lost = lost_options(self._wanted, parse_config(text))
        if lost:
            raise UserError(
                f"guest kernel: Kconfig did not take {', '.join(lost)}",
                hint="a dependency is missing or the name is wrong: see guest/kernel/*.config",
            )
        if config.exists() and config.read_text() == text:
            return False
        config.write_text(text)
        return True


def environment() -> dict[str, str]:
    """Variables that make module builds reproducible as well."""
    return {**STABLE_ENV, "LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")}
