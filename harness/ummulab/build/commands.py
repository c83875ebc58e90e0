# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab build``, ``ummulab images`` and ``ummulab generate``."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import click

from ummulab.build import debian, housekeeping, prebuilt, store
from ummulab.build.arch import ARCHES, DEFAULT_ARCH
from ummulab.build.paths import REPO, cache_dir
from ummulab.build.pipeline import Pipeline
from ummulab.build.progress import default_reporter
from ummulab.errors import UserError

arch_option = click.option(
    "--arch",
    type=click.Choice(list(ARCHES)),
    envvar="GUEST_ARCH",
    default=DEFAULT_ARCH,
    show_default=True,
    help="Guest architecture (GUEST_ARCH).",
)


@click.command()
@click.argument("what", type=click.Choice(["all", "qemu", "kernel", "image"]), default="all")
@arch_option
@click.option("--debug", is_flag=True, help="The kernel with sanitizers and lock checking.")
@click.option("--asan", is_flag=True, help="QEMU with address and undefined-behaviour sanitizers.")
@click.option("--refresh", is_flag=True, help="Look for newer Debian sources and packages first.")
def build(what: str, arch: str, debug: bool, asan: bool, refresh: bool) -> None:
    """Build what is not in the cache; print where everything is.

    WHAT is all, qemu, kernel or image.  With UMMULAB_IMAGES nothing is built.
    """
    reporter = default_reporter()
    if os.environ.get("UMMULAB_IMAGES") and not (debug or asan):
        ready = prebuilt.use(Path(os.environ["UMMULAB_IMAGES"]), arch, reporter)
        for name in ("qemu", "kernel", "initrd"):
            click.echo(f"{name:<8}{getattr(ready, name)} (prebuilt)")
        return
    if refresh:
        debian.forget()
    pipeline = Pipeline(arch, reporter, debug=debug)
    found: dict[str, Path] = {}
    if what in ("all", "qemu"):
        found["qemu"] = pipeline.qemu(variant="asan" if asan else "")
    if what in ("all", "kernel"):
        found["kernel"] = pipeline.kernel_entry().path / "kernel"
    if what in ("all", "image"):
        found["initrd"] = pipeline.image_entry().path / "initrd"
    for name, path in found.items():
        click.echo(f"{name:<8}{path}")


@click.group()
def images() -> None:
    """Built artifacts: pack, list, check and clean them."""


@images.command("make")
@arch_option
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=REPO / "build/images"
)
def make_images(arch: str, output: Path) -> None:
    """Pack QEMU and images into one archive for UMMULAB_IMAGES=DIR."""
    path = prebuilt.make(arch, output.resolve(), default_reporter())
    click.echo(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


@images.command("list")
def list_images() -> None:
    """Show what is in the cache."""
    for folder in store.all_entries():
        try:
            entry = store.Entry(folder, store.read_manifest(folder))
        except store.Corrupt as error:
            click.echo(f"{folder.name:<48} corrupt: {error}")
            continue
        age = time.time() - folder.stat().st_mtime
        versions = ", ".join(f"{name} {value}" for name, value in sorted(entry.versions.items()))
        click.echo(f"{folder.name:<48} {entry.size() / 1e6:8.1f} MB {age / 3600:6.1f} h  {versions}")


@images.command("verify")
@click.argument("archives", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@arch_option
def verify_images(archives: tuple[Path, ...], arch: str) -> None:
    """Hash every file of the cache again, or those of ARCHIVES."""
    problems = 0
    for archive in archives:
        housekeeping.verify_archive(archive, arch)
        click.echo(f"{archive}: good")
    for folder in () if archives else store.all_entries():
        try:
            store.verify(folder, thorough=True)
        except store.Corrupt as error:
            problems += 1
            click.echo(f"corrupt: {error}", err=True)
    if problems:
        raise UserError(f"{problems} corrupt cache entries", hint="the next build makes them again")
    if not archives:
        click.echo("all entries are good")


@images.command("gc")
@click.option("--hours", default=24.0, show_default=True, help="Keep what was used within this time.")
@click.option("--all", "everything", is_flag=True, help="Remove all that was built; keep downloads.")
def gc(hours: float, everything: bool) -> None:
    """Remove artifacts that were not used lately."""
    freed = housekeeping.collect(0.0 if everything else hours, default_reporter())
    if everything:
        freed += housekeeping.remove_work(default_reporter())
    free = shutil.disk_usage(cache_dir()).free if cache_dir().exists() else 0
    click.echo(f"freed {freed / 1e6:.1f} MB, {free / 1e9:.1f} GB are free")


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; fail if a file is stale.")
def generate(check: bool) -> None:
    """Write the generated headers and reference pages again."""
    from ummulab import codegen

    stale = codegen.generate(REPO, check=check)
    for name in stale:
        click.echo(name)
    if check and stale:
        raise UserError(f"{len(stale)} generated files are stale", hint="run: scripts/ummulab generate")
