# SPDX-License-Identifier: GPL-2.0-or-later
"""Run build tools: output to a log, progress to the user, no process left behind."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from ummulab.build.locks import held_descriptors
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Step
from ummulab.errors import UserError

Command = Sequence[str | Path]
#: Looks at one line of output; (done, total) if it tells.
Parser = Callable[[str], tuple[int, int] | None]

#: No build step may be silent and busy for longer than this.
STALL_SECONDS = 1800.0
_NINJA = re.compile(r"^\[(\d+)/(\d+)\]")
_ERROR = re.compile(
    r"(\berror\b|^ERROR|^E: |FAILED|No rule to make|undefined reference|\*\*\*)", re.IGNORECASE
)


def ninja_progress(line: str) -> tuple[int, int] | None:
    """Progress from ninja's ``[done/total]``."""
    match = _NINJA.match(line)
    return (int(match[1]), int(match[2])) if match else None


def counting(pattern: str, total: int) -> Parser:
    """Progress by counting the lines that match, out of about ``total``."""
    regex = re.compile(pattern)
    seen = 0

    def parse(line: str) -> tuple[int, int] | None:
        nonlocal seen
        if not regex.search(line):
            return None
        seen += 1
        return min(seen, total), total

    return parse


def log_path(name: str) -> Path:
    """The log file of a step."""
    return writable(cache_dir() / "logs") / f"{name}.log"


def run(
    command: Command,
    log: Path,
    what: str,
    *,
    step: Step | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    parse: Parser | None = None,
    append: bool = True,
) -> None:
    """Run one build tool to its end; a failure is a UserError with the line that tells why."""
    argv = list(map(str, command))
    with log.open("ab" if append else "wb") as out:
        out.write(f"$ {' '.join(argv)}\n".encode())
        out.flush()
        begin = out.tell()
        process = start(argv, subprocess.PIPE, cwd, env)
        try:
            _pump(process, out.write, step, parse, what, log)
            status = process.wait(timeout=60)
        except BaseException:
            stop(process)
            raise
    if status:
        raise failure(what, log, begin, status)


def start(
    argv: Sequence[str], stdout: int | IO[bytes], cwd: Path | None, env: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a build tool so that it ends with us, however we end."""
    return subprocess.Popen(
        # Should we be killed, the kernel ends the tool: nothing goes on behind the user's back.
        ["setpriv", "--pdeathsig", "TERM", "nice", *argv],
        cwd=cwd,
        env=None if env is None else {**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        # An own session, so that an interrupt reaches the compilers through us, all of them.
        start_new_session=True,
        pass_fds=held_descriptors(),
    )


def _pump(
    process: subprocess.Popen[bytes],
    write: Callable[[bytes], int],
    step: Step | None,
    parse: Parser | None,
    what: str,
    log: Path,
) -> None:
    assert process.stdout is not None
    last = time.monotonic()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if step:
                step.tick()
            if not selector.select(timeout=1.0):
                if time.monotonic() - last > STALL_SECONDS:
                    raise UserError(f"{what}: no output for {STALL_SECONDS:.0f} s, gave up (log: {log})")
                continue
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return
            last = time.monotonic()
            write(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                progress = parse(line.decode(errors="replace")) if parse else None
                if progress and step:
                    step.update(*progress)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a tool and everything it started."""
    for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
            break
    # The first process has ended; what did not listen to it goes the hard way.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def failure(what: str, log: Path, begin: int, status: int) -> UserError:
    """Turn the tail of a log into one line."""
    with log.open("rb") as file:
        file.seek(begin)
        text = file.read().decode(errors="replace")
    if "No space left on device" in text or "ENOSPC" in text:
        return UserError(
            f"{what}: no disk space left (cache folder: {cache_dir()})", hint="make clean frees some"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = next(
        (line for line in lines if _ERROR.search(line)), lines[-1] if lines else f"status {status}"
    )
    return UserError(f"{what} failed: {telling[:300]}", hint=f"log: {log}")


def output(command: Command, what: str, *, env: Mapping[str, str] | None = None, limit: float = 120.0) -> str:
    """Run a short tool and return its stdout."""
    try:
        done = subprocess.run(
            list(map(str, command)),
            env=None if env is None else {**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except FileNotFoundError:
        raise UserError(f"{what}: {command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{what}: no answer from {command[0]} within {limit:.0f} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        telling = next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "")
        raise UserError(f"{what} failed: {telling[:300] or f'status {done.returncode}'}")
    return done.stdout


def unpack_deb_file(deb: Path, name: str) -> bytes:
    """One file out of a Debian package."""
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -xO "./$2"'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script, "deb", str(deb), name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    if done.returncode:
        why = (done.stderr.decode(errors="replace").strip() or f"status {done.returncode}").splitlines()[0]
        raise UserError(f"cannot read {name} from {deb.name}: {why}")
    return done.stdout
