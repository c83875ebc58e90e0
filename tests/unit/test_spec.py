# SPDX-License-Identifier: GPL-2.0-or-later
"""The layout facts are consistent, load as meant, and the generated files are fresh."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ummulab import codegen
from ummulab.layouts import layouts
from ummulab.spec import SpecError, load, load_accel

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted(layouts())


def test_generated_files_are_fresh() -> None:
    assert codegen.generate(ROOT, check=True) == [], "run: scripts/ummulab generate"


def test_a_stale_file_is_reported(tmp_path: Path) -> None:
    codegen.generate(tmp_path)
    name = "qemu-device/hw/ummu/ummu-layout.h"
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(text.replace("UMMU_EN", "UMMU_ON", 1))
    assert codegen.generate(tmp_path, check=True) == [name]


@pytest.mark.parametrize("name", ALL)
def test_fields_lie_inside_and_do_not_overlap(name: str) -> None:
    layout = layouts()[name]
    taken = [0] * layout.words
    for f in layout.fields:
        assert 0 <= f.word < layout.words
        assert f.lsb + f.width <= layout.unit_bits
        if f.overlay:
            continue
        assert not taken[f.word] & f.mask, f"{name}.{f.name} overlaps another field"
        taken[f.word] |= f.mask


@pytest.mark.parametrize("spec", [load(), load_accel()], ids=["ummu", "accel"])
def test_registers_do_not_overlap(spec: object) -> None:
    used: dict[int, str] = {}
    for r in spec.registers.values():  # type: ignore[attr-defined]
        for byte in range(r.offset, r.offset + r.width // 8):
            assert byte not in used, f"{r.name} overlaps {used[byte]}"
            used[byte] = r.name
        assert r.mask < 1 << r.width
        assert (r.reset or 0) < 1 << r.width


@pytest.mark.parametrize(
    ("register", "field", "lsb", "width"),
    [
        ("CTRL0", "UMMU_EN", 0, 1),
        ("CTRL0", "MAPT_EN", 5, 1),
        ("CTRL1", "BAD_DSTEID_RECORD", 13, 1),
        ("TECT_BASE", "ADDR", 6, 46),
        ("TECT_BASE_CFG", "SPLIT", 6, 5),
        ("MCMDQ_PI", "EN", 31, 1),
        ("EVENT_QUE_CI", "OVFLG_RESP", 31, 1),
        ("CAP5", "FREE_BIT", 10, 1),
    ],
)
def test_register_fields(register: str, field: str, lsb: int, width: int) -> None:
    f = next(f for f in load().reg(register).fields if f.name == field)
    assert (f.lsb, f.width) == (lsb, width)


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("TECTE", {"V": 1, "ST_MODE": 7, "TCT_NUM": 20, "TCT_FMT": 2}, {0: 0xF, 1: 20 | 2 << 52}),
        ("TCTE", {"V": 1, "MAPT_MODE": 1, "RTGS": 1, "E_BIT": 1}, {0: 1 | 1 << 16 | 1 << 17 | 1 << 21}),
        ("MAPTE", {"V": 1, "PERMISSION": 7, "TOKEN_CHK": 1}, {0: 0x71, 3: 1 << 31}),
        ("UMAPTE", {"LIMIT_HI": 0xFFFF, "TOKEN_VAL_1": 0xFFFFFFFF}, {5: 0xFFFF, 7: 0xFFFFFFFF}),
        ("EVT", {"CODE": 0x0A, "TID": 0xABCDE, "STALL": 1}, {0: 0x0A | 1 << 18 | 0xABCDE << 32}),
    ],
)
def test_pack_puts_bits_where_the_tables_say(
    name: str, values: dict[str, int], words: dict[int, int]
) -> None:
    layout = layouts()[name]
    split = layout.split(layout.pack(**values))
    assert {i: w for i, w in enumerate(split) if w} == words


def test_command_opcode_is_filled_in() -> None:
    assert load().commands["CMD_TLBI_OS_VA"].pack(TID=5)[0] == 0x12


@given(st.data())
def test_unpack_gives_back_what_pack_took(data: st.DataObject) -> None:
    layout = layouts()[data.draw(st.sampled_from(ALL))]
    fields = [f for f in layout.fields if not f.overlay]
    values = {f.name: data.draw(st.integers(0, (1 << f.width) - 1), label=f.name) for f in fields}
    out = layout.unpack(layout.pack(**values))
    assert {f.name: out[f.name] for f in fields} == values


def test_a_value_that_is_too_wide_is_refused() -> None:
    with pytest.raises(SpecError, match="TID: 0x100000 does not fit 20 bits"):
        layouts()["MAPT_CMDQ_CTX"].pack(TID=1 << 20)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SpecError, match="TCTE has no field WIDTH"):
        layouts()["TCTE"].pack(WIDTH=1)
    with pytest.raises(SpecError, match="no register CTRL9"):
        load().reg("CTRL9")


def test_events_name_existing_fields() -> None:
    spec = load()
    assert spec.event_layout is not None
    for event in spec.events.values():
        assert set(event.filled) <= set(spec.event_layout.by_name)
    assert spec.event_name(0x15) == "EVT_EBIT_DENY"
    assert spec.event_name(0x77) == "EVT_0x77"
