# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's own generic fuzzer, pointed at both devices: seeds, a bounded run, findings.

QEMU's fuzzer knows PCI only as the PC has it, so the guest is x86_64 whatever the models are used for.  It drives
all registers of both functions, and memory is filled from patterns whenever a device reads it (tables, rings, data).
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ummulab.build import ensure_qemu
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter, default_reporter
from ummulab.errors import UserError
from ummulab.spec import Register, Spec, load, load_accel

ARCH = "x86_64"
#: more seconds for one input are a hang, more memory a leak
INPUT_SECONDS, MEMORY_MIB = 30, 2048
MAX_INPUT = 8192
_GRACE_SECONDS = 120
_SEPARATOR = b"FUZZ"
_WRITE, _ADD_PATTERN, _CLEAR_PATTERNS, _CLOCK_STEP = 3, 7, 8, 9  # enum cmds of QEMU's generic_fuzz.c
_SIZE_CODE = {16: 1, 32: 2, 64: 3}
#: the fuzzer numbers memory regions in an order of its own: each seed is made for every number
_REGIONS = 12
_RAM = 0x1000000
_EID, _TID = 1, 1


@dataclass(frozen=True)
class FuzzResult:
    """Outcome of a run: ``findings`` are inputs that broke a device."""

    executions: int
    seconds: float
    findings: list[Path]
    log: Path


def folders() -> tuple[Path, Path]:
    """Corpus and findings; both stay between runs."""
    base = cache_dir() / "fuzz" / "device"
    return writable(base / "corpus"), writable(base / "findings")


# ---- seeds -------------------------------------------------------------------------------------------------------


def _write(register: Register, value: int, region: int, at: int = 0) -> bytes:
    # struct {u8 size; u8 base; u32 offset; u64 value} with its padding
    operands = struct.pack("<BBxxIQ", _SIZE_CODE[register.width], region, at + register.offset, value)
    return bytes([_WRITE]) + operands


def _pattern(data: bytes) -> bytes:
    return bytes([_ADD_PATTERN, 0, 0]) + data


def _ummu_on(spec: Spec, region: int) -> Iterator[bytes]:
    """Registers of the UMMU as a driver sets them, EIDs being tags."""
    for name, value in (
        ("CTRL1", 0x1D75),
        ("TECT_BASE", _RAM),
        ("TECT_BASE_CFG", 8),
        ("MAPT_CMDQ_CTXT_BADDR", _RAM + 0x100000 | 4),
        ("EVENT_QUE_BASE", _RAM + 0x200000 | 4),
        ("GLB_INT_EN", 3),
        ("CTRL0", 0x23),
    ):
        yield _write(spec.reg(name), value, region)


def _commands(spec: Spec, region: int) -> Iterator[bytes]:
    """MCMDQ 0 with eight commands, and the doorbell of user queue 0."""
    bank = spec.banks["MCMDQ"].base
    for name, value in (
        ("MCMDQ_BASE", _RAM + 0x300000 | 5),
        ("MCMDQ_PI", 1 << 31),
        ("MCMDQ_PI", 1 << 31 | 8),
    ):
        yield _write(spec.reg(name), value, region, bank)
    yield _write(spec.reg("UCMDQ_PI"), 4, region, 0x20000)


def _job(accel: Spec, region: int) -> Iterator[bytes]:
    """Queue 0 of the accelerator with four descriptors."""
    queue, bell = accel.banks["QUEUE"].base, accel.banks["DOORBELL"].base
    yield _write(accel.reg("CTRL"), 1, region)
    for name, value in (
        ("Q_SQ_BASE", _RAM + 0x400000),
        ("Q_CQ_BASE", _RAM + 0x500000),
        ("Q_SIZE", 0x0404),
        ("Q_TID", _TID),
        ("Q_CTRL", 3),
        ("Q_TID_BIND", 1 << 31 | _TID),
    ):
        yield _write(accel.reg(name), value, region, queue)
    yield _write(accel.reg("DB_SQ_PI"), 4, region, bell)


def seeds() -> Iterator[bytes]:
    """Inputs that set both devices up, with plausible tables, so that the fuzzer need not find that by chance."""
    spec, accel = load(), load_accel()
    entity = spec.structures["TECTE"].pack(
        V=1, ST_MODE=5, PRIV_SEL=3, MAPT_EN=1, TCT_NUM=6, TCT_PTR=_RAM >> 6
    )
    contexts = [
        spec.structures["TCTE"].pack(V=1, AA64=1, GPAS=5, FBR=1, FBA=1, MATT_BYPASS=1),
        spec.structures["TCTE"].pack(
            V=1, AA64=1, GPAS=5, SZ=16, FBR=1, FBS=1, MATTBA=_RAM >> 4, MAPT_EN=1, MAPT_MODE=1, RTGS=1, MAPT_BB_SZ=4,
            MAPT_BBA=_RAM >> 5, MAPT_BTA=_RAM >> 5,
        ),
    ]  # fmt: skip
    job = accel.structures["ACCEL_DESC"].pack(
        OPCODE=1, LENGTH=0x3000, OP0_VA=_RAM, OP0_TID=_TID, OP1_VA=_RAM + 0x8000, OP1_TID=_TID
    )
    node = spec.structures["MAPTE"].pack(V=1, PERMISSION=7, LIMIT_LO=0xFFFFFFFF, LIMIT_HI=0x7F)
    for context in contexts:
        for ummu in range(_REGIONS):
            for device in range(_REGIONS):
                operations = [
                    bytes([_CLEAR_PATTERNS]),
                    *map(_pattern, (entity, context, node, job)),
                    *_ummu_on(spec, ummu),
                    *_commands(spec, ummu),
                    *_job(accel, device),
                    bytes([_CLOCK_STEP]) + struct.pack("<Q", 1_000_000),
                ]
                yield _SEPARATOR.join(operations)


def write_seeds(corpus: Path) -> int:
    """Write the seeds; returns their number."""
    count = 0
    for count, seed in enumerate(seeds(), 1):
        (corpus / f"seed-{count:03}").write_bytes(seed)
    return count


# ---- running -----------------------------------------------------------------------------------------------------


def _environment(program: Path) -> dict[str, str]:
    share = program.parent / "share"
    devices = (
        "-device ummu,id=ummu0,user-queues=16 -device ummu-accel,ummu=ummu0,eid=0x1,queues=4,vram-size=1M"
    )
    return {
        **os.environ,
        "QEMU_FUZZ_ARGS": f"-machine q35 -nodefaults -vga none -L {share} {devices}",
        "QEMU_FUZZ_OBJECTS": "ummu*",
        "QEMU_AVOID_DOUBLE_FETCH": "1",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def _options(findings: Path) -> list[str]:
    return [
        "--fuzz-target=generic-fuzz",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-max_len={MAX_INPUT}",
        f"-artifact_prefix={findings}/",
        "-detect_leaks=0",
    ]


def fuzz(minutes: float, reporter: Reporter | None = None) -> FuzzResult:
    """Fuzz both devices for a bounded time, or until something breaks.

    The corpus grows from run to run; an input that breaks a device is kept in the folder of findings.
    """
    reporter = reporter or default_reporter()
    program = Path(ensure_qemu(ARCH, variant="fuzz", progress=reporter))
    corpus, findings = folders()
    write_seeds(corpus)
    before = set(findings.iterdir())
    log = writable(cache_dir() / "logs") / "fuzz-device.log"
    limit = minutes * 60
    start = time.monotonic()
    with log.open("wb") as out, reporter.step(f"fuzzing both devices for {minutes:g} minutes", limit) as step:
        process = subprocess.Popen(
            [
                "nice",
                str(program),
                *_options(findings),
                f"-max_total_time={int(limit)}",
                "-print_final_stats=1",
                corpus,
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_environment(program),
        )
        try:
            while process.poll() is None:
                elapsed = time.monotonic() - start
                step.update(int(min(elapsed, limit)), max(1, int(limit)))
                if elapsed > limit + _GRACE_SECONDS:
                    raise UserError(f"the fuzzer did not end {_GRACE_SECONDS} s after its time (log: {log})")
                time.sleep(0.5)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    new = sorted(set(findings.iterdir()) - before)
    text = log.read_text(errors="replace")
    if process.returncode and not new:
        raise UserError(
            f"the fuzzer ended with status {process.returncode}: {_last_line(text)}", hint=f"log: {log}"
        )
    return FuzzResult(_executions(text), time.monotonic() - start, new, log)


def replay(path: Path, reporter: Reporter | None = None) -> str:
    """Run one input again; returns what the sanitizers say about it, "" if nothing."""
    program = Path(ensure_qemu(ARCH, variant="fuzz", progress=reporter or default_reporter()))
    done = subprocess.run(
        [str(program), *_options(folders()[1]), str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(program),
        timeout=INPUT_SECONDS + _GRACE_SECONDS,
    )
    return "" if not done.returncode else done.stderr


def _executions(log: str) -> int:
    counts = re.findall(r"^(?:stat::number_of_executed_units: +|#)(\d+)", log, re.MULTILINE)
    return int(counts[-1]) if counts else 0


def _last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
