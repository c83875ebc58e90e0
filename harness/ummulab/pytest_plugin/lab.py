# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of one process share, and the VMs each of them has."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ummulab.vm import Vm
    from ummulab.vm.session import Session
    from ummulab.vm.state import SavedState

DEFAULT_ARCH = "aarch64"
LAB: pytest.StashKey[Lab] = pytest.StashKey()


class Lab:
    """Images and templates of a test run, made when the first test asks."""

    def __init__(self, arch: str, accel: str, log_dir: Path | None, live: bool) -> None:
        self.arch = arch
        self.log_dir = log_dir
        self.live = live
        self._accel = accel
        self._sessions: dict[bool, Session] = {}
        self._vms: dict[str, list[Vm]] = {}

    @classmethod
    def from_config(cls, config: pytest.Config) -> Lab:
        """The lab that the options and the environment describe."""
        arch = config.getoption("--guest-arch") or os.environ.get("GUEST_ARCH") or DEFAULT_ARCH
        os.environ["GUEST_ARCH"] = arch  # for commands that tests start
        if config.getoption("--images"):
            os.environ["UMMULAB_IMAGES"] = str(Path(config.getoption("--images")).resolve())
        logs = config.getoption("--vm-log-dir")
        return cls(
            arch,
            config.getoption("--accel"),
            Path(logs).resolve() if logs else None,
            config.getoption("--vm-console"),
        )

    def session(self, *, debug: bool = False) -> Session:
        """Images and templates; ``debug`` is the kernel with sanitizers."""
        if debug not in self._sessions:
            from ummulab import build
            from ummulab.vm.session import Session

            images = build.ensure(self.arch, debug=debug)
            self._sessions[debug] = Session(self.arch, accel=self._accel, images=images)
        return self._sessions[debug]

    def vms_of(self, item: pytest.Item) -> list[Vm]:
        """The VMs that a test has or shares."""
        own = self._vms.get(item.nodeid, [])
        module = item.getparent(pytest.Module)
        if module is None or "module_vm" not in getattr(item, "fixturenames", ()):
            return own
        return [*own, *self._vms.get(module.nodeid, [])]

    def enter(self, nodeid: str, vm: Vm) -> None:
        """Note a VM as belonging to a test or module."""
        self._vms.setdefault(nodeid, []).append(vm)

    def leave(self, nodeid: str) -> None:
        """Forget the VMs of a test or module."""
        self._vms.pop(nodeid, None)


class VmFactory:
    """Starts VMs for one test (or module) and ends them with it."""

    def __init__(self, lab: Lab, node: pytest.Item | pytest.Collector) -> None:
        self._lab = lab
        self._node = node
        self._stack = ExitStack()

    def __enter__(self) -> VmFactory:
        return self

    def __exit__(self, *error: Any) -> None:
        self._lab.leave(self._node.nodeid)
        self._stack.close()

    def __call__(self, *, boot: bool = False, state: SavedState | None = None, **config: Any) -> Vm:
        """Start a VM.  The markers ``icount`` and ``debug_kernel`` of the test count."""
        from ummulab.vm import Vm, VmConfig

        session = self._lab.session(debug=self._marked("debug_kernel"))
        config.setdefault("icount", self._marked("icount"))
        config.setdefault("accel", "tcg" if config["icount"] else session.accel.name)
        wanted = VmConfig(arch=self._lab.arch, **config)
        log_dir = self._log_dir()
        if state is not None:
            vm = Vm(session.images, state=state, log_dir=log_dir)
        else:
            vm = session.fresh(wanted, boot=boot, log_dir=log_dir)
        if self._lab.live:
            vm.kernel_log.on_line = _show_line
        self._stack.enter_context(vm)
        self._lab.enter(self._node.nodeid, vm)
        return vm

    def _marked(self, name: str) -> bool:
        return self._node.get_closest_marker(name) is not None

    def _log_dir(self) -> Path | None:
        if self._lab.log_dir is None:
            return None
        name = re.sub(r"[^\w.-]+", "_", self._node.nodeid).strip("_")
        folder = self._lab.log_dir / name
        number = 1
        while folder.exists():
            number += 1
            folder = self._lab.log_dir / f"{name}.{number}"
        return folder


def _show_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
