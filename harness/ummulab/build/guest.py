# SPDX-License-Identifier: GPL-2.0-or-later
"""Guest programs: modules, libraries and tools, each built by its own Makefile."""

from __future__ import annotations

import shutil
from pathlib import Path

from ummulab.build import host, process, sources, store
from ummulab.build.inputs import Inputs, SourceFile, lay_out, read_sources
from ummulab.build.kernel import Kernel, KernelTree, environment
from ummulab.build.paths import REPO, writable
from ummulab.build.progress import Reporter, jobs
from ummulab.errors import UserError

RECIPE = 1
#: In the order in which they are built: libraries before what links with them.
PARTS = ("kmod", "libummu", "accel", "tools")


def part_files() -> dict[str, SourceFile]:
    """Sources of all parts; a part without a Makefile is an incomplete checkout."""
    for part in PARTS:
        if not (REPO / "guest" / part / "Makefile").is_file():
            raise UserError(f"guest/{part}/Makefile is missing: is this checkout complete?")
    return read_sources([f"guest/{part}" for part in PARTS])


def ensure(kernel: Kernel, reporter: Reporter) -> store.Entry:
    """Everything built from guest/, as the tree that goes into the image."""
    files = part_files()
    inputs = Inputs(kernel.inputs.kind.replace("kernel", "guest"), kernel.arch.name)
    inputs.add("recipe", RECIPE)
    inputs.add("kernel", kernel.inputs.key)
    inputs.add("host", host.host_id())
    inputs.add_files(files)

    def build(target: Path) -> dict[str, str]:
        host.require_packages(["make", *kernel.arch.compiler_packages()], reporter)
        with (
            kernel.tree() as tree,
            reporter.step(f"building modules, libraries and tools for {kernel.arch.name}", 40) as step,
        ):
            work = sources.work_dir() / f"guest-{tree.output.parent.name}-{tree.output.name}"
            lay_out(files, work / "src", "guest/")
            log = process.log_path(f"guest-{kernel.arch.name}")
            log.unlink(missing_ok=True)
            for part in PARTS:
                for goal in ("all", "install"):
                    process.run(
                        _make(part, goal, kernel, tree, work, target),
                        log,
                        f"building guest/{part}",
                        step=step,
                        env=environment(),
                    )
        _check(target)
        return {}

    return store.get(inputs, build, reporter)


def _make(
    part: str, goal: str, kernel: Kernel, tree: KernelTree, work: Path, target: Path
) -> list[str | Path]:
    output = writable(work / "build" / part)
    return [
        "make",
        "-C",
        work / "src" / part,
        f"-j{jobs()}",
        goal,
        *tree.make,
        f"CC={kernel.arch.cross}gcc",
        f"AR={kernel.arch.cross}ar",
        "KCFLAGS=-Werror",  # a warning in a module is an error for us, not for who builds it elsewhere
        f"KSRC={tree.source}",
        f"KOUT={tree.output}",
        f"BUILD={output}",
        f"DESTDIR={target}",
    ]


def _check(target: Path) -> None:
    """An install target that installs nothing must not pass as a build."""
    names = {path.name for path in target.rglob("*")}
    wanted = {"ummu.ko", "ummu_accel.ko", "libummu.so.1", "libummuaccel.so.1", "ummu-demo"}
    missing = sorted(wanted - names)
    if missing:
        shutil.rmtree(target)
        raise UserError(f"guest/: the build did not install {', '.join(missing)}")
