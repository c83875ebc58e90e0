# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine we build on: Debian, its packages, its disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ummulab.build import process
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter
from ummulab.errors import UserError

GIB = 1 << 30
SUPPORTED = ("12", "13")


@cache
def os_release() -> dict[str, str]:
    """/etc/os-release as a table; empty where there is none."""
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name: value.strip().strip('"') for name, value in pairs}


def host_id() -> str:
    """The distribution as part of a key: libraries of another release are other libraries."""
    return f"{os_release().get('ID', 'unknown')}-{os_release().get('VERSION_ID', 'unknown')}"


def require_debian() -> None:
    """Refuse in one line where packages cannot be installed as we do it."""
    release = os_release()
    if release.get("ID") != "debian" or release.get("VERSION_ID") not in SUPPORTED:
        name = release.get("PRETTY_NAME", "an unknown system")
        raise UserError(
            f"cannot build here: this is not a Debian system of version 12 or 13, but {name}",
            hint="use prebuilt images: UMMULAB_IMAGES=DIR (made elsewhere by 'make images')",
        )


def missing_packages(wanted: Iterable[str]) -> list[str]:
    """Which Debian packages are not installed."""
    names = list(dict.fromkeys(wanted))
    done = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}\\n", *names],
        capture_output=True,
        text=True,
    )
    installed = {line.split()[0] for line in done.stdout.splitlines() if line.split()[1:2] == ["ii"]}
    return [name for name in names if name not in installed]


def _become_root(packages: list[str]) -> list[str]:
    if os.geteuid() == 0:
        return []
    manual = f"run as root: apt-get install {' '.join(packages)}"
    if not shutil.which("sudo"):
        raise UserError("packages are missing and there is no sudo", hint=manual)
    if not sys.stdin.isatty() and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode:
        raise UserError("packages are missing and sudo asks for a password", hint=manual)
    if subprocess.run(["sudo", "-v"]).returncode:
        raise UserError("packages are missing and sudo was refused", hint=manual)
    return ["sudo"]


def require_packages(wanted: Iterable[str], reporter: Reporter) -> None:
    """Install the Debian packages that are missing, and nothing else."""
    require_debian()
    missing = missing_packages(wanted)
    if not missing:
        return
    root = _become_root(missing)
    log = process.log_path("apt-install")
    apt = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"]
    with reporter.step(f"installing Debian packages: {' '.join(missing)}", 60) as step:
        try:
            process.run([*apt, "update"], log, "apt-get update", step=step, append=False)
        except UserError:
            # One broken third-party source must not stop us; what matters is whether the packages come.
            reporter.note(f"apt-get update had errors (log: {log}), going on")
        try:
            process.run(
                [*apt, "install", "-y", "--no-install-recommends", *missing],
                log,
                "apt-get install",
                step=step,
            )
        except UserError as error:
            raise network_hint(error, log) from None


NETWORK_SIGNS = (
    "Temporary failure resolving",
    "Could not resolve",
    "Could not connect",
    "Cannot initiate the connection",
    "Network is unreachable",
    "Failed to fetch",
    "Connection failed",
    "Connection timed out",
)


def network_hint(error: UserError, log: Path) -> UserError:
    """Say "no network" where that is what apt's log says."""
    text = log.read_text(errors="replace") if log.exists() else ""
    if any(sign in text for sign in NETWORK_SIGNS):
        return UserError(
            "Debian's package mirror cannot be reached",
            hint=f"is the network up? UMMULAB_DEBIAN_MIRROR=URL names another mirror (log: {log})",
        )
    return error


def require_disk(gib: float, what: str) -> None:
    """Refuse early instead of filling the disk."""
    place = writable(cache_dir())
    free = shutil.disk_usage(place).free / GIB
    if free < gib:
        raise UserError(
            f"not enough disk space for {what}: {gib:.1f} GiB needed, {free:.1f} GiB free in {place}",
            hint="set UMMULAB_CACHE to a folder on a larger disk, or make clean",
        )
