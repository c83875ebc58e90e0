# SPDX-License-Identifier: GPL-2.0-or-later
"""All readers of a layout agree, building undoes parsing, damage is never read as zeros (V33)."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ummulab import layouts
from ummulab.layouts import LayoutError
from ummulab.spec import SpecError

ALL = sorted(layouts.layouts())
names = st.sampled_from(ALL)


@st.composite
def structures(draw: st.DrawFn) -> tuple[str, bytes]:
    """A layout name with random, all-zero or all-one contents."""
    name = draw(names)
    size = layouts.layout(name).size
    return name, draw(
        st.one_of(st.just(b"\xff" * size), st.just(bytes(size)), st.binary(min_size=size, max_size=size))
    )


def by_hand(name: str, data: bytes) -> dict[str, int]:
    """Field values by the plainest means: one big integer."""
    layout = layouts.layout(name)
    whole = int.from_bytes(data, "little")
    return {
        f.name: whole >> (f.word * layout.unit_bits + f.lsb) & ((1 << f.width) - 1) for f in layout.fields
    }


@given(structures())
def test_every_reader_gives_the_same_fields(case: tuple[str, bytes]) -> None:
    name, data = case
    want = by_hand(name, data)
    assert layouts.parse(name, data).fields == want
    parsed = layouts.construct_of(name).parse(data)
    assert {f: parsed[f] for f in want} == want
    words = layouts.bulk(name, data)
    assert {f: int(layouts.column(name, words, f)[0]) for f in want} == want
    row = layouts.records(name, data)[0]
    assert {f: int(row[f]) for f in want} == want


@settings(max_examples=30, deadline=None)
@given(structures())
def test_compiled_construct_agrees(case: tuple[str, bytes]) -> None:
    name, data = case
    parsed = layouts.construct_compiled(name).parse(data)
    want = by_hand(name, data)
    assert {f: parsed[f] for f in want} == want


@given(structures())
def test_build_is_the_inverse_of_parse(case: tuple[str, bytes]) -> None:
    name, data = case
    struct = layouts.construct_of(name)
    assert struct.build(struct.parse(data)) == data
    assert layouts.parse(name, data).raw == data


@given(structures(), st.data())
def test_replace_changes_one_field_only(case: tuple[str, bytes], data: st.DataObject) -> None:
    name, raw = case
    entry = layouts.parse(name, raw)
    f = data.draw(st.sampled_from([f for f in entry.layout.fields if not f.overlay]))
    value = data.draw(st.integers(0, (1 << f.width) - 1))
    changed = int.from_bytes(layouts.replace(entry, **{f.name: value}), "little")
    shift = f.word * entry.layout.unit_bits
    assert changed ^ int.from_bytes(raw, "little") == (entry[f.name] ^ value) << f.lsb + shift


@given(names, st.data())
def test_cut_data_is_an_error_with_path_and_offset(name: str, data: st.DataObject) -> None:
    size = layouts.layout(name).size
    length = data.draw(st.integers(0, size - 1))
    with pytest.raises(LayoutError) as caught:
        layouts.parse(name, bytes(size + length), path="TCT[7]", offset=size)
    assert (caught.value.path, caught.value.offset) == ("TCT[7]", size)
    assert f"{length} left" in str(caught.value)
    if length:
        with pytest.raises(LayoutError) as caught:
            layouts.bulk(name, bytes(2 * size + length))
        assert (caught.value.path, caught.value.offset) == (f"{name}[2]", 2 * size)


def test_an_empty_table_has_no_entries() -> None:
    words = layouts.bulk("MAPTE", b"")
    assert words.shape == (0, 8)
    assert list(layouts.entries("MAPTE", words, 0)) == []


def test_entries_keep_address_and_words() -> None:
    table = bytearray(4 * 64)
    table[128:192] = layouts.build("TCTE", V=1, ASID=0xBEEF)
    (entry,) = layouts.entries("TCTE", layouts.bulk("TCTE", bytes(table)), 0x8000)
    assert (entry.addr, entry["ASID"]) == (0x8080, 0xBEEF)
    assert entry.hex_words()[0] == "0000beef00000001"


def test_command_entries_follow_their_opcode() -> None:
    data = layouts.build("CMD_PLBI_OS_VA", OPCODE=0x16, TID=9, RANGE=12)
    entry = layouts.parse_command(data, 0x1000)
    assert (entry.name, entry["TID"], entry["RANGE"]) == ("CMD_PLBI_OS_VA", 9, 12)
    assert layouts.parse_command(bytes([0xEE]) + bytes(31)).name == "CMD_SYNC"


def test_unknown_structure_and_field_are_refused() -> None:
    with pytest.raises(SpecError, match="no structure TCTX"):
        layouts.layout("TCTX")
    with pytest.raises(SpecError, match="TCTE has no field X"):
        layouts.replace(layouts.parse("TCTE", bytes(64)), X=1)


def test_a_million_nodes_scan_quickly() -> None:
    data = np.zeros((1_000_000, 8), dtype="<u4")
    data[::1000, 0] = 1
    raw = data.tobytes()
    start = time.perf_counter()
    found = layouts.valid_indices("MAPTE", layouts.bulk("MAPTE", raw))
    spent = time.perf_counter() - start
    assert len(found) == 1000
    print(f"10^6 nodes scanned in {spent * 1000:.1f} ms")
