# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeds of the device fuzzer and its command's bad uses; the fuzzer itself runs by ``ummulab fuzz device``."""

from __future__ import annotations

import struct

import pytest
from click.testing import CliRunner
from ummulab.fuzz import device
from ummulab.fuzz.commands import fuzz
from ummulab.spec import load, load_accel


def operations(seed: bytes) -> list[bytes]:
    return seed.split(b"FUZZ")


def test_seeds_are_whole_operations_within_the_limit() -> None:
    seeds = list(device.seeds())
    assert len(seeds) == 2 * device._REGIONS**2 and len(set(seeds)) == len(seeds)
    for seed in seeds:
        assert len(seed) <= device.MAX_INPUT
        for operation in operations(seed):
            assert operation[0] in (3, 7, 8, 9)
            assert len(operation) == {3: 17, 8: 1, 9: 9}.get(operation[0], len(operation))


def test_seeds_write_the_registers_they_mean() -> None:
    """An operation holds size code, region, offset and value as QEMU's generic fuzzer reads them."""
    first = next(device.seeds())
    writes = [struct.unpack("<BBxxIQ", o[1:]) for o in operations(first) if o[0] == 3]
    spec, accel = load(), load_accel()
    assert (2, 0, spec.reg("CTRL0").offset, 0x23) in writes
    assert (3, 0, spec.reg("TECT_BASE").offset, device._RAM) in writes
    assert (2, 0, accel.banks["DOORBELL"].base + accel.reg("DB_SQ_PI").offset, 4) in writes


def test_patterns_are_table_entries() -> None:
    sizes = [len(o) - 3 for o in operations(next(device.seeds())) if o[0] == 7]
    assert sizes == [64, 64, 32, 64]


def test_executions_are_read_from_either_form_of_the_log() -> None:
    assert device._executions("#12 NEW cov\nstat::number_of_executed_units: 4711\n") == 4711
    assert device._executions("#1\tINITED\n#99\tNEW    cov: 3\n") == 99
    assert device._executions("") == 0


@pytest.mark.parametrize(
    "arguments", [["--minutes", "0"], ["--minutes", "-1"], ["--minutes", "x"], ["--replay", "nothing"]]
)
def test_wrong_use(arguments: list[str]) -> None:
    assert CliRunner().invoke(fuzz, ["device", *arguments]).exit_code == 2
