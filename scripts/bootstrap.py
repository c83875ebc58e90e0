# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the project's Python environment once, then become the asked command in it.

Only the standard library here.  The environment lives in the cache folder under
a name made from the requirements in pyproject.toml and the Python version, so a
changed requirement gets a new one and nothing is ever updated in place.  A
marker file written last says that it is complete; a half-made one is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NoReturn, TextIO

ROOT = Path(__file__).resolve().parent.parent
#: Tools that run in the environment instead of the ummulab command.
TOOLS = {"python": [], "pytest": ["-m", "pytest"], "ruff": ["-m", "ruff"], "mypy": ["-m", "mypy"]}
VENV_SECONDS = 60
#: With less than this left, a failure is put down to the disk.
FULL_BYTES = 4 << 20


def die(message: str) -> NoReturn:
    """End with one line."""
    sys.exit(f"ummulab: error: {message}")


def say(message: str) -> None:
    """A progress line, on stderr: stdout belongs to the command."""
    print(f"ummulab: {message}", file=sys.stderr, flush=True)


def cache_dir() -> Path:
    """The cache folder; harness/ummulab/build/paths.py has the same rule."""
    explicit = os.environ.get("UMMULAB_CACHE")
    if explicit:
        return Path(explicit).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ummulab"


def requirements() -> list[str]:
    """Everything pyproject.toml asks for: to run, to build QEMU, to develop."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = (item for group in project["optional-dependencies"].values() for item in group)
    return sorted({*project["dependencies"], *extras})


def environment_dir(wanted: list[str]) -> Path:
    """Where the environment for these requirements and this Python lives."""
    real = os.path.realpath(sys.executable)
    text = "\n".join(["venv-1", sys.version, real, *wanted])
    return cache_dir() / "venv" / hashlib.sha256(text.encode()).hexdigest()[:16]


def install_venv_package() -> None:
    """Debian keeps ensurepip in a package of its own; install it if it is missing."""
    if importlib.util.find_spec("ensurepip") is not None:
        return
    if not Path("/etc/debian_version").exists():
        die("this Python has no ensurepip (venv support): install it")
    sudo = [] if os.geteuid() == 0 else [shutil.which("sudo") or ""]
    if sudo == [""]:
        die("python3-venv is missing and there is no sudo: run 'apt-get install python3-venv' as root")
    say("installing python3-venv (about 20 s, once)")
    apt = [*sudo, "apt-get", "-qq"]
    for command in ([*apt, "update"], [*apt, "install", "-y", "--no-install-recommends", "python3-venv"]):
        if subprocess.run(command, stdout=sys.stderr).returncode:
            die("apt-get could not install python3-venv: is the network up?")


def reason(log: Path) -> str:
    """The line of pip's log that says why, for the one-line error."""
    lines = log.read_text(errors="replace").splitlines()
    text = "\n".join(lines)
    # The log itself is cut short on a full disk.
    if "No space left" in text or shutil.disk_usage(log.parent).free < FULL_BYTES:
        return f"no disk space left under {cache_dir()}"
    if any(
        sign in text for sign in ("NewConnectionError", "Temporary failure in name", "Network is unreachable")
    ):
        return "the Python package index cannot be reached: is the network up?"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "pip does not trust the package index's certificate: set PIP_CERT to the file of your network's CA"
    errors = [line for line in lines if line.startswith("ERROR")]
    return f"{errors[-1] if errors else 'pip failed'} (log: {log})"


def run_logged(command: list[str], out: TextIO, lock: TextIO) -> int:
    """Run one step; should we be killed, it ends as well, and keeps the lock until then."""
    guard = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    done = subprocess.run(
        [*guard, *command],
        stdout=out,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        pass_fds=[lock.fileno()],
    )
    return done.returncode


def make_environment(venv: Path, wanted: list[str], lock: TextIO) -> None:
    """Create the environment; the caller holds the lock."""
    install_venv_package()
    shutil.rmtree(venv, ignore_errors=True)
    log = venv.with_suffix(".log")
    say(f"setting up the Python environment (about {VENV_SECONDS} s, once)")
    start = time.monotonic()
    with log.open("w") as out:
        for command in (
            [sys.executable, "-m", "venv", str(venv)],
            # The user's own pip configuration decides where packages come from.
            [str(venv / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", *wanted],
        ):
            if run_logged(command, out, lock):
                out.flush()
                die(reason(log))
    (venv / "complete").touch()
    say(f"Python environment ready after {time.monotonic() - start:.0f} s")


def take(lock: TextIO) -> None:
    """Hold the lock; say so when another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another ummulab that sets up the Python environment")
        fcntl.flock(lock, fcntl.LOCK_EX)


def ensure_environment() -> Path:
    """Return the interpreter of a complete environment."""
    wanted = requirements()
    venv = environment_dir(wanted)
    if not (venv / "complete").exists():
        try:
            venv.parent.mkdir(parents=True, exist_ok=True)
            lock = (venv.parent / f"{venv.name}.lock").open("w")
        except OSError as error:
            die(f"cannot write to the cache folder {cache_dir()}: {error.strerror}")
        with lock:
            take(lock)
            if not (venv / "complete").exists():
                make_environment(venv, wanted, lock)
    return venv / "bin/python"


def main() -> NoReturn:
    """Replace this process by the command."""
    try:
        python = ensure_environment()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        die(f"{error.strerror}: {error.filename or cache_dir()}")
    arguments = sys.argv[1:]
    if arguments and arguments[0] in TOOLS:
        arguments = [*TOOLS[arguments[0]], *arguments[1:]]
    else:
        arguments = ["-m", "ummulab", *arguments]
    paths = [str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
    os.execve(python, [str(python), *arguments], environment)


if __name__ == "__main__":
    main()
