# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU accelerator to use, and the reason in words.

TCG is the normal case.  KVM is taken only when three things hold: the guest is of the host's
architecture, the CPU says it can, and a VM started with it really runs (a /dev/kvm that exists
but hangs the guest for ever has been seen).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ummulab.errors import UsageError
from ummulab.vm.config import ARCHES, arch_of

if TYPE_CHECKING:
    from ummulab.build import Images

CHOICES = ("auto", "tcg", "kvm")
PROBE_SECONDS = 1.0
KVM_DEVICE = Path("/dev/kvm")
CPUINFO = Path("/proc/cpuinfo")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Accel:
    """The accelerator chosen and why."""

    name: str
    reason: str


def choose_accel(images: Images, arch: str, wanted: str = "auto") -> Accel:
    """Decide between TCG and KVM; ``wanted="kvm"`` is an error when KVM cannot be used."""
    if wanted not in CHOICES:
        raise UsageError(f"unknown accelerator {wanted!r} (known: {', '.join(CHOICES)})")
    if wanted == "tcg":
        return Accel("tcg", "asked for")
    obstacle = kvm_obstacle(arch) or remembered_probe(images, arch)
    if obstacle is None:
        return Accel("kvm", "guest and host are alike, the CPU can, and a trial start passed")
    if wanted == "kvm":
        raise UsageError(f"KVM cannot be used: {obstacle}")
    return Accel("tcg", f"no KVM: {obstacle}")


def kvm_obstacle(arch: str) -> str | None:
    """Say why KVM is out of the question without starting anything, or None."""
    host = platform.machine()
    if host != arch:
        return f"the guest is {arch}, the host {host}"
    if not KVM_DEVICE.exists():
        return f"there is no {KVM_DEVICE}"
    if not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        return f"no permission to open {KVM_DEVICE}"
    if arch == "x86_64" and not {"vmx", "svm"} & set(CPUINFO.read_text().split()):
        return "the CPU shows no virtualization (vmx or svm)"
    return None


def remembered_probe(images: Images, arch: str) -> str | None:
    """The result of :func:`probe_kvm`, which is asked once per boot of this machine and per QEMU and kernel.

    A hanging /dev/kvm costs the whole trial time, which no later command should pay again.
    """
    from ummulab.build.paths import cache_dir

    record = cache_dir() / "kvm-probe.json"
    key = [arch, BOOT_ID.read_text().strip(), images.hashes.get("qemu"), images.hashes.get("kernel")]
    try:
        known = json.loads(record.read_text())
        if known["key"] == key and isinstance(known["obstacle"], str | None):
            return known["obstacle"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none, or a damaged one: ask again
    obstacle = probe_kvm(images, arch)
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        temporary = record.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"key": key, "obstacle": obstacle}) + "\n")
        temporary.replace(record)
    return obstacle


def probe_kvm(images: Images, arch: str) -> str | None:
    """Start the guest kernel under KVM; None if it says a first word in time, else what happened."""
    facts = arch_of(arch)
    argv = [str(images.qemu), "-L", str(images.qemu_datadir), "-nodefaults", "-no-user-config"]
    argv += ["-display", "none", "-machine", facts.machine, "-accel", "kvm", "-cpu", "host", "-m", "128M"]
    argv += ["-kernel", str(images.kernel), "-append", f"earlycon console={facts.console} panic=-1"]
    argv += ["-serial", "stdio", "-no-reboot"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as process:
        try:
            return _first_word(process, PROBE_SECONDS)
        finally:
            process.kill()


def _first_word(process: subprocess.Popen[bytes], seconds: float) -> str | None:
    assert process.stdout is not None and process.stderr is not None
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                if process.stdout.read1(1):  # type: ignore[attr-defined]
                    return None
                lines = process.stderr.read().decode(errors="replace").strip().splitlines()
                return f"the trial start failed ({lines[-1] if lines else 'no message'})"
    return f"a trial start gave no sign of life within {seconds:g} s"


def default_accel(arch: str) -> str:
    """The accelerator to use where nobody asked: tests want the same on every machine."""
    assert arch in ARCHES
    return "tcg"
