# SPDX-License-Identifier: GPL-2.0-or-later
"""What all VMs of one run share: images, accelerator, templates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ummulab.vm.accel import Accel, choose_accel
from ummulab.vm.config import VmConfig, arch_of
from ummulab.vm.template import Templates
from ummulab.vm.vm import Vm

if TYPE_CHECKING:
    from ummulab.build import Images


class Session:
    """Images of an architecture (built when missing) with their templates in the cache."""

    def __init__(self, arch: str = "aarch64", *, accel: str = "auto", images: Images | None = None) -> None:
        from ummulab import build
        from ummulab.build.housekeeping import TEMPLATES
        from ummulab.build.paths import cache_dir

        arch_of(arch)
        self.images = images or build.ensure(arch)
        self.arch = arch
        self.accel: Accel = choose_accel(self.images, arch, accel)
        self.templates = Templates(self.images, cache_dir() / TEMPLATES)

    def fresh(self, config: VmConfig, *, boot: bool = False, log_dir: Path | None = None) -> Vm:
        """Return a not yet started VM: a clone of the template, or one that boots."""
        if boot or not config.cloneable():
            return Vm(self.images, config, log_dir=log_dir)
        return self.templates.clone(config, log_dir=log_dir)
