# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU with our devices: Debian's source, a minimal configuration, qemu-device/ laid over it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ummulab.build import host, process, sources, store
from ummulab.build.arch import ARCHES, BuildArch, build_arch, host_arch
from ummulab.build.debian import Download, Fetcher
from ummulab.build.inputs import Inputs, SourceFile, lay_out, read_sources, sha256
from ummulab.build.locks import locked
from ummulab.build.paths import writable
from ummulab.build.progress import Reporter, jobs, scaled
from ummulab.errors import UsageError

RECIPE = 1
OVERLAY = "qemu-device/hw/ummu/"
CONFIGS = "qemu-device/configs/"
PACKAGES = (
    "gcc",
    "libc6-dev",
    "make",
    "ninja-build",
    "pkg-config",
    "libglib2.0-dev",
    "libfdt-dev",
    "zlib1g-dev",
    "xz-utils",
    "patch",
)
#: Variants beside the plain one, and the Debian packages that only they need.
VARIANT_PACKAGES: dict[str, tuple[str, ...]] = {
    "": (),
    "asan": ("libasan8", "libubsan1"),
    "fuzz": ("clang", "libclang-rt-dev", "llvm"),
}

#: Measured, with room to spare.
SOURCE_GIB = 0.5
BUILD_GIB = {"": 0.3, "asan": 1.0, "fuzz": 1.0}

#: The lines that make QEMU's build know hw/ummu: (file, regular expression to put it after, text).
#: Edits by anchor rather than a patch, so that another 10.x tree (QEMU_SRC=) takes them as well.
HOOKS = (
    ("hw/meson.build", r"^subdir\('ufs'\)\n", "subdir('ummu')\n"),
    ("hw/Kconfig", r"^source ufs/Kconfig\n", "source ummu/Kconfig\n"),
    ("meson.build", r"^ *'hw/ufs',\n", "    'hw/ummu',\n"),
)
#: Debian strips the edk2 images, but meson expects them as soon as it finds bzip2.  We boot kernels directly.
EDK2 = ("meson.build", r"unpack_edk2_blobs = bzip2\.found\(\)", "unpack_edk2_blobs = false  # ummulab")


@dataclass(frozen=True)
class QemuSource:
    """Where the base source comes from."""

    version: str
    identity: str
    archive: Path | None  #: the fetched tarball
    tree: Path | None  #: the user's tree (QEMU_SRC=)

    def folder(self, variant: str = "") -> Path:
        """The work folder of a variant of exactly this source.

        Each variant has a tree of its own, so that its long build blocks nobody who changes a model.
        """
        name = f"qemu-{sha256(self.identity.encode())[:12]}"
        return sources.work_dir() / (f"{name}-{variant}" if variant else name)


def find_source(fetcher: Fetcher) -> QemuSource:
    """The source to use: QEMU_SRC if set, else Debian's, fetched if it is not in the cache."""
    given = os.environ.get("QEMU_SRC")
    if given:
        tree = Path(given).resolve()
        try:
            version = (tree / "VERSION").read_text().strip()
        except OSError:
            raise UsageError(f"QEMU_SRC={given}: not a QEMU source tree (it has no VERSION file)") from None
        if not version.startswith("10."):
            raise UsageError(f"QEMU_SRC={given}: QEMU {version}; the devices are written for QEMU 10.x")
        fingerprint = sha256("\n".join(sources.tree_identity(tree)).encode())
        return QemuSource(version, f"tree {tree} {version} {fingerprint}", None, tree)
    got = fetcher.get("qemu", source=True)
    return QemuSource(got.version, got.identity, got.file(".orig.tar.xz"), None)


def configure_arguments(arch: BuildArch, variant: str = "") -> list[str]:
    """Options of QEMU's configure."""
    # All guest architectures are configured together: what they share is compiled once, and only the
    # program that is asked for is linked.  A variant is rarely wanted for more than one.
    targets = [arch] if variant else list(ARCHES.values())
    arguments = [
        f"--target-list={','.join(target.target for target in targets)}",
        "--without-default-features",
        "--without-default-devices",
        *(f"--with-devices-{target.name}=ummulab" for target in targets),
        "--enable-system",
        "--enable-tcg",
        "--enable-fdt=system",
        "--enable-virtfs",
        "--enable-attr",
        "--enable-trace-backends=log",
        "--disable-docs",
        "--disable-install-blobs",
        "--disable-download",
    ]
    if host_arch() in [target.name for target in targets]:
        arguments.append("--enable-kvm")
    if variant:
        # Undefined behaviour ends the process, as an address error does: a test must see it.
        flags = "-fno-sanitize-recover=undefined -fno-omit-frame-pointer"
        arguments += ["--enable-debug-info", "--enable-asan", "--enable-ubsan", f"--extra-cflags={flags}"]
        if variant == "fuzz":
            arguments += ["--cc=clang", "--cxx=clang++", "--enable-fuzzing"]
        return arguments
    # Debug information would cost a third of the build time; the variants have it.
    return [*arguments, "--disable-debug-info"]


def overlay_files() -> dict[str, SourceFile]:
    """Our part of the QEMU tree."""
    return read_sources([OVERLAY.rstrip("/"), CONFIGS.rstrip("/")])


def inputs_for(arch: BuildArch, source: QemuSource, files: dict[str, SourceFile], variant: str = "") -> Inputs:
    """Everything that decides what the program becomes."""
    inputs = Inputs(f"qemu-{variant}" if variant else "qemu", arch.name)
    inputs.add("recipe", RECIPE)
    inputs.add("source", source.identity)
    inputs.add("configure", configure_arguments(arch, variant))
    inputs.add("hooks", [*HOOKS, EDK2])
    inputs.add("host", f"{host.host_id()} {host_arch()}")
    configs = CONFIGS + (f"{arch.target}/" if variant else "")
    inputs.add_files({name: file for name, file in files.items() if name.startswith((OVERLAY, configs))})
    return inputs


def program_name(arch: BuildArch, variant: str = "") -> str:
    """Name of the program a variant builds."""
    return f"qemu-fuzz-{arch.name}" if variant == "fuzz" else arch.qemu


def ensure(arch_name: str, fetcher: Fetcher, reporter: Reporter, *, variant: str = "") -> store.Entry:
    """QEMU for one guest architecture, from the cache or built now.

    ``variant``: "" is what VMs run; "asan" has sanitizers; "fuzz" is QEMU's own fuzzer with sanitizers.
    """
    arch = build_arch(arch_name)
    source = find_source(fetcher)
    files = overlay_files()
    firmware = {package: fetcher.get(package) for package, _ in arch.firmware}
    inputs = inputs_for(arch, source, files, variant)
    if firmware:
        inputs.add("firmware", [arch.firmware, {name: got.identity for name, got in firmware.items()}])

    def build(target: Path) -> dict[str, str]:
        folder = source.folder(variant)
        unpacked = (folder / "src" / sources.COMPLETE).exists()
        host.require_disk(BUILD_GIB[variant] + (0 if unpacked else SOURCE_GIB), "building QEMU")
        host.require_packages([*PACKAGES, *VARIANT_PACKAGES[variant]], reporter)
        with locked(folder.name, reporter):
            tree = _prepare_tree(source, folder, files, reporter)
            program = _compile(arch, tree, folder, variant, reporter)
            shutil.copy2(program, target / program.name)
        _install_data(arch, target / "share", firmware, source.version)
        return {"qemu": source.version}

    return store.get(inputs, build, reporter)


def unpack_source(source: QemuSource, folder: Path, reporter: Reporter) -> Path:
    """The base source as a tree in ``folder``, a work folder whose lock the caller holds."""
    tree = folder / "src"
    if source.tree:
        with reporter.step(f"copying {source.tree}", 10) as step:
            sources.mirror_tree(source.tree, tree, step)
    else:
        assert source.archive
        script = 'tar -xJf "$1" --strip-components=1 -C "$OUT"'
        sources.unpack(script, [source.archive], tree, f"QEMU {source.version}", 20, reporter)
    return tree


def _prepare_tree(
    source: QemuSource, folder: Path, files: dict[str, SourceFile], reporter: Reporter
) -> Path:
    tree = unpack_source(source, folder, reporter)
    lay_out(files, tree / "hw/ummu", OVERLAY)
    lay_out(files, tree / "configs/devices", CONFIGS)
    for name, anchor, text in HOOKS:
        _edit(tree / name, anchor, text, keep=True)
    _edit(tree / EDK2[0], EDK2[1], EDK2[2], keep=False)
    return tree


def _edit(path: Path, anchor: str, text: str, *, keep: bool) -> None:
    """Put ``text`` after the anchor (``keep``) or in its place, once."""
    before = path.read_text()
    if text in before:
        return
    after, count = re.subn(
        anchor, lambda match: (match[0] if keep else "") + text, before, flags=re.MULTILINE
    )
    if count != 1:
        raise UsageError(f"{path}: not the expected QEMU source: {anchor!r} found {count} times")
    path.write_text(after)


def _compile(arch: BuildArch, tree: Path, folder: Path, variant: str, reporter: Reporter) -> Path:
    name = f"{arch.name}-{variant}" if variant else "all"
    program = program_name(arch, variant)
    build = writable(folder / f"build-{name}")
    log = process.log_path(f"qemu-{name}")
    arguments = configure_arguments(arch, variant)
    marker = build / ".ummulab-configured"
    if not _configured(marker, arguments):
        shutil.rmtree(build)
        writable(build)
        # This interpreter's environment has the meson and pycotap that Debian strips from the source.
        command: list[str | Path] = [tree / "configure", *arguments, f"--python={sys.executable}"]
        with reporter.step("configuring QEMU", 30) as step:
            process.run(command, log, "configuring QEMU", step=step, cwd=build, append=False)
        marker.write_text("\n".join([*arguments, f"--python={sys.executable}"]))
    seconds = scaled({"": 260, "asan": 400, "fuzz": 700}[variant])
    if (build / program).exists():
        seconds = 20
    elif any((build / other.qemu).exists() for other in ARCHES.values()):
        seconds /= 4
    what = f"{arch.qemu} ({variant})" if variant else arch.qemu
    with reporter.step(f"compiling {what}", seconds) as step:
        process.run(
            ["ninja", "-C", build, f"-j{jobs()}", program],
            log,
            "compiling QEMU",
            step=step,
            parse=process.ninja_progress,
        )
    return build / program


def _configured(marker: Path, arguments: list[str]) -> bool:
    """Whether the build folder is set up so, by a Python environment that is still there."""
    if not marker.exists():
        return False
    *before, python = marker.read_text().splitlines()
    python = python.removeprefix("--python=")
    return before == arguments and Path(python).exists()


def _install_data(arch: BuildArch, target: Path, firmware: dict[str, Download], version: str) -> None:
    """The folder for -L: only what QEMU loads at start on this machine type."""
    target.mkdir()
    (target / "VERSION").write_text(f"{version}\n")
    for package, path in arch.firmware:
        data = process.unpack_deb_file(firmware[package].file(".deb"), path)
        (target / Path(path).name).write_bytes(data)
