# SPDX-License-Identifier: GPL-2.0-or-later
"""ummu-demo: the whole path through library, drivers and devices."""

from __future__ import annotations

import json
import random

import pytest
from ummulab.vm import Vm

CASES = ["copy", "wrong-token", "beyond-range", "write-to-read-only", "after-ungrant"]


def test_zero_copy_in_words(module_vm: Vm) -> None:
    result = module_vm.run(["ummu-demo", "zero-copy"])
    lines = result.text.splitlines()
    assert result.status == 0
    assert lines[-1] == "zero-copy: ok"
    assert [line.split()[0] for line in lines[:-1]] == ["ok"] * 5
    assert "by the accelerator, 0 by the CPU" in lines[0]
    assert all("refused: event EVT_P_PERMISSION" in line for line in lines[1:-1])


def test_zero_copy_json(module_vm: Vm) -> None:
    result = module_vm.run(["ummu-demo", "zero-copy", "--json"])
    report = json.loads(result.stdout)
    assert result.status == 0
    assert report["ok"] is True
    assert all(
        set(case) >= {"name", "expected", "got", "event", "memory_unchanged"} for case in report["cases"]
    )
    copy, *refused = report["cases"]
    assert [case["name"] for case in report["cases"]] == CASES
    assert (copy["expected"], copy["got"], copy["event"]) == ("done", "done", "")
    assert [(case["expected"], case["got"]) for case in refused] == [("refused", "refused")] * 4
    assert [case["event"] for case in refused] == ["EVT_P_PERMISSION"] * 4
    assert all(case["memory_unchanged"] for case in report["cases"])


def test_each_refusal_is_an_event_of_the_ummu(vm: Vm) -> None:
    before = vm.qmp.execute("qom-get", {"path": "/machine/peripheral/ummu0", "property": "counters"})
    vm.run(["ummu-demo", "zero-copy"], check=True)
    after = vm.qmp.execute("qom-get", {"path": "/machine/peripheral/ummu0", "property": "counters"})
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    # With page tables of the UMMU's own, the first use of a page is an event as well: a stalled one.
    assert grown["events-recorded"] - grown.get("stalls", 0) == 4, grown
    assert "EVT_P_PERMISSION" in vm.kernel_log.text()


def crc32c(data: bytes) -> int:
    """CRC-32C the slow and plain way."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def test_crc_known_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [1, 4095, 4096, 65537])
def test_crc_of_a_file_equals_ours(module_vm: Vm, size: int) -> None:
    data = random.Random(size).randbytes(size)
    module_vm.put("/tmp/file", data)
    result = module_vm.run(["ummu-demo", "crc", "/tmp/file"], check=True)
    assert f"{crc32c(data):08x}" in result.text


def test_crc_of_64_mib_equals_the_cpu(vm: Vm) -> None:
    vm.run("head -c 67108864 /dev/urandom >/tmp/big", 120, check=True)
    result = vm.run("ummu-demo crc --verify /tmp/big", 120, check=True)
    assert result.text.split()[0] == "crc32c"


def test_crc_of_the_check_string(module_vm: Vm) -> None:
    module_vm.put("/tmp/file", b"123456789")
    assert "e3069283" in module_vm.run("ummu-demo crc --verify /tmp/file", check=True).text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["crc"], "crc needs a file"),
        (["crc", "/none"], "/none: No such file"),
        (["crc", "/tmp"], "/tmp: not a regular file"),
        (["crc", "/tmp/empty"], "/tmp/empty: the file is empty"),
        (["nonsense"], "unknown command: nonsense"),
        (["zero-copy", "--nonsense"], "unknown option: --nonsense"),
        ([], "no command"),
    ],
)
def test_wrong_words_are_one_line(module_vm: Vm, words: list[str], says: str) -> None:
    module_vm.run(": >/tmp/empty", check=True)
    result = module_vm.run(["ummu-demo", *words])
    assert result.status == 1 or result.status == 2
    assert result.stdout == b""
    assert result.stderr.decode().startswith(f"ummu-demo: error: {says}")
    assert result.stderr.count(b"\n") == 1


def test_without_the_modules_it_says_so(vm: Vm) -> None:
    vm.run("rmmod ummu_accel && rmmod ummu", check=True)
    result = vm.run(["ummu-demo", "zero-copy"])
    assert result.status == 1
    assert result.stderr.count(b"\n") == 1, result.stderr
