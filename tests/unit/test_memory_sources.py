# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory sources: exact bytes or an error, never invented zeros; damaged dumps are refused in one line."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ummulab.errors import UserError
from ummulab.memory import BytesImage, MemoryReadError, Segments, elf_core, ram_file


def core(segments: list[tuple[int, bytes]], *, cut: int = 0, phnum: int | None = None) -> bytes:
    """An ELF core as dump-guest-memory writes it."""
    count = len(segments)
    offset = 64 + 56 * count
    head = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01" + bytes(9),
        4,
        183,
        1,
        0,
        64,
        0,
        0,
        64,
        56,
        count if phnum is None else phnum,
        0,
        0,
        0,
    )
    body = b""
    for addr, data in segments:
        head += struct.pack("<IIQQQQQQ", 1, 6, offset + len(body), 0, addr, len(data), len(data), 0)
        body += data
    return (head + body)[: len(head + body) - cut]


def test_bytes_image() -> None:
    image = BytesImage(bytes(range(16)), 0x1000, {"CTRL0": 5})
    assert image.read(0x1004, 4) == b"\4\5\6\7"
    assert image.read(0x1004, 0) == b""
    assert image.register("CTRL0") == 5
    with pytest.raises(KeyError):
        image.register("CTRL1")
    for addr, length in ((0xFFF, 1), (0x100F, 2), (0x1010, 1), (0, 8)):
        with pytest.raises(MemoryReadError, match="not in this memory"):
            image.read(addr, length)


def test_reads_cross_adjoining_pieces_only() -> None:
    memory = Segments([(0x2000, b"CD"), (0x1FFE, b"AB"), (0x3000, b"E")])
    assert memory.read(0x1FFE, 4) == b"ABCD"
    assert memory.ranges == [(0x1FFE, 2), (0x2000, 2), (0x3000, 1)]
    with pytest.raises(MemoryReadError) as caught:
        memory.read(0x2000, 3)
    assert caught.value.addr == 0x2002


def test_overlapping_pieces_are_refused() -> None:
    with pytest.raises(UserError, match="overlap at 0x1001"):
        Segments([(0x1000, b"AB"), (0x1001, b"C")])


def test_elf_core(tmp_path: Path) -> None:
    path = tmp_path / "a file with spaces.core"
    path.write_bytes(core([(0x4000_0000, b"x" * 100), (0x8000_0000, b"y")]))
    memory = elf_core(path, {"GBPA": 1})
    assert memory.read(0x4000_0060, 4) == b"xxxx"
    assert memory.register("GBPA") == 1
    with pytest.raises(MemoryReadError):
        memory.read(0x4000_0060, 8)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "cannot read"),
        (b"not an elf file at all" * 10, "not an ELF core"),
        (b"\x7fELF\x01\x01" + bytes(100), "not a 64-bit little-endian ELF core"),
        (
            core([(0, b"x" * 100)], cut=1),
            "segment for 0x0 is cut off: needs 100 bytes at 0x78, the file has 219",
        ),
        (core([(0, b"x")], phnum=60000), "damaged program header table"),
        (core([(0, b"x")], phnum=100), "damaged program header table"),
        (core([]), "without memory segments"),
    ],
)
def test_damaged_cores(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "core"
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        elf_core(path)
    assert text in str(caught.value) and str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        elf_core(tmp_path / "none")


def test_ram_file(tmp_path: Path) -> None:
    path = tmp_path / "ram"
    path.write_bytes(b"low." + b"high")
    memory = ram_file(path, [(0x1000, 0, 4), (0x1_0000_0000, 4, 4)])
    assert memory.read(0x1_0000_0000, 4) == b"high"
    path.write_bytes(b"LOW!high")
    assert memory.read(0x1000, 4) == b"LOW!", "a running VM's memory changes under the reader"
