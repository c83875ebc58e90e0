# SPDX-License-Identifier: GPL-2.0-or-later
"""What the documents show, done: command lines marked ``<!-- run guest -->``, and whole C programs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from ummulab import doccheck
from ummulab.build import host
from ummulab.build.arch import build_arch
from ummulab.build.paths import REPO
from ummulab.build.progress import default_reporter
from ummulab.vm import Vm

DOCUMENTS = doccheck.documents(REPO)
RUN = [c for d in DOCUMENTS for c in doccheck.commands(d) if c.mark == "run guest"]
PROGRAMS = [
    pytest.param(match[1], id=f"{d.relative_to(REPO)}:{d.read_text()[: match.start()].count(chr(10)) + 1}")
    for d in DOCUMENTS
    for match in re.finditer(r"^```c\n(.*?)^```$", d.read_text(), re.MULTILINE | re.DOTALL)
    if "int main(" in match[1]
]
INCLUDES = ("guest/libummu/include", "guest/accel/include", "guest/kmod/include")
LIBRARIES = ("libummu.so.1", "libummuaccel.so.1")


@pytest.mark.parametrize("command", RUN, ids=lambda command: command.where)
def test_command_line_runs(command: doccheck.Command) -> None:
    done = subprocess.run(command.text, shell=True, cwd=REPO, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", PROGRAMS)
def test_c_program_compiles_and_runs(module_vm: Vm, tmp_path: Path, source: str) -> None:
    arch = build_arch(os.environ["GUEST_ARCH"])
    host.require_packages(["gcc", *arch.compiler_packages()], default_reporter())
    (tmp_path / "example.c").write_text(source)
    for name in LIBRARIES:
        (tmp_path / name).write_bytes(module_vm.get(f"/usr/lib64/{name}"))
    program = tmp_path / "example"
    argv = [
        f"{arch.cross}gcc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        program,
        tmp_path / "example.c",
    ]
    argv += [f"-I{REPO / folder}" for folder in INCLUDES]
    argv += [*(tmp_path / name for name in LIBRARIES), "-Wl,-rpath,/usr/lib64"]
    built = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    module_vm.put("/tmp/example", program.read_bytes(), mode=0o755)
    result = module_vm.run("/tmp/example", check=True)
    assert result.stdout.count(b"\n") >= 1
