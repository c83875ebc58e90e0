# SPDX-License-Identifier: GPL-2.0-or-later
"""Section 8, stage 2: the entity's translation (TECTE: NS_S2_*, VTCR_EL2 meanings)."""

from __future__ import annotations

from ummulab.layouts import Entry
from ummulab.model.context import size_limits
from ummulab.model.descriptor import (
    DBM,
    GRANULE_BITS,
    FlagPolicy,
    Geometry,
    Leaf,
    Stage,
    check_access_flag,
    store,
    walk,
)
from ummulab.model.fetch import Trace
from ummulab.model.stage1 import Rights
from ummulab.model.state import SIZE_BITS, Access, State
from ummulab.model.verdict import Refusal

_READ, _WRITE = 1 << 6, 1 << 7
CLS_TCT, CLS_WALK, CLS_INPUT = 0, 1, 2
_CONCAT_BITS = 4  # up to 16 concatenated start tables
_WALK_RIGHTS = {False: Rights(Access.READ, True, False), True: Rights(Access.WRITE, True, False)}


def geometry(state: State, tecte: Entry) -> Geometry:
    """The stage 2 walk of an entity; BAD_TECT for contents that describe none."""
    code = tecte["NS_S2_TG"]
    if not state.granule_supported(code):
        raise _bad(f"NS_S2_TG {code} is not supported")
    lowest, highest = size_limits(state, code)
    if not lowest <= tecte["NS_S2_TSZ"] <= highest:
        raise _bad(f"NS_S2_TSZ {tecte['NS_S2_TSZ']} is not in {lowest}..{highest}")
    if tecte["S2_PAS"] not in SIZE_BITS:
        raise _bad(f"S2_PAS {tecte['S2_PAS']} is reserved")
    if tecte["S2_HDF"] and not tecte["S2_HAF"]:
        raise _bad("S2_HDF without S2_HAF")
    granule, bits = GRANULE_BITS[code], 64 - tecte["NS_S2_TSZ"]
    level = _start_level(granule, tecte["NS_S2_SL"])
    geo = Geometry(
        0, granule, bits, level, min(SIZE_BITS[tecte["S2_PAS"]], state.output_bits), bool(tecte["S2_ENDI"])
    )
    if level < 0 or not 1 <= geo.index_bits(level) <= geo.stride + _CONCAT_BITS:
        raise _bad(f"NS_S2_SL {tecte['NS_S2_SL']} does not fit {bits} input bits")
    align = max(64, 8 << geo.index_bits(level))
    base = (tecte["NS_S2_MATT"] << 4) & ~(align - 1)
    return Geometry(base, granule, bits, level, geo.output_bits, geo.big)


def _start_level(granule_bits: int, code: int) -> int:
    """VTCR_EL2.SL0: with 4 KiB 0, 1, 2 start at level 2, 1, 0; else at 3, 2, 1; 3 is level 3 or reserved."""
    if granule_bits == 12:
        return {0: 2, 1: 1, 2: 0, 3: 3}[code]
    return {0: 3, 1: 2, 2: 1, 3: -1}[code]


def translate(
    state: State, trace: Trace, tecte: Entry, ipa: int, rights: Rights, cls: int
) -> tuple[int, int]:
    """(physical address, bytes up to the end of the page) of ``ipa``; a refusal has S2 = 1 and the IPA."""
    geo = geometry(state, tecte)
    stage = Stage(s2=True, cls=cls, ipa=ipa)
    if ipa >> geo.input_bits:
        raise stage.refuse(
            "EVT_A_TRANSLATION", "input-size", f"IPA {ipa:#x} is not a {geo.input_bits}-bit address"
        )
    leaf = walk(trace, geo, ipa, stage, _physical)
    policy = FlagPolicy.of(tecte["S2_HAF"], tecte["S2_AFFD"], tecte["S2_HDF"], state.httu)
    desc = check_access_flag(leaf, stage, policy)
    if cls == CLS_WALK and tecte["S2_PTW"] and _is_device(tecte, desc):
        raise stage.refuse("EVT_A_PERMISSION", "protected-walk", "a table lies in Device memory (S2_PTW = 1)")
    desc = _check_rights(state, leaf, desc, rights, policy, stage)
    store(trace, geo, leaf, desc, _physical)
    offset = ipa & ((1 << leaf.shift) - 1)
    trace.note(
        "stage 2", "8.3", f"IPA {ipa:#x} -> {leaf.base + offset:#x}, page of {1 << leaf.shift:#x} bytes"
    )
    return leaf.base + offset, (1 << leaf.shift) - offset


def table_access(state: State, trace: Trace, tecte: Entry, addr: int, *, write: bool, cls: int) -> int:
    """5.5: the physical address of a context, stage 1 or MAPT table access of a nested entity."""
    return translate(state, trace, tecte, addr, _WALK_RIGHTS[write], cls)[0]


def _physical(addr: int, _write: bool) -> int:
    return addr


def _is_device(tecte: Entry, desc: int) -> bool:
    attr = desc >> 2 & 0xF
    return attr & 4 == 0 if tecte["S2_FWB"] else attr >> 2 == 0


def _check_rights(
    state: State, leaf: Leaf, desc: int, rights: Rights, policy: FlagPolicy, stage: Stage
) -> int:
    clean = bool(not desc & _WRITE and desc & DBM and policy.dirty)
    if rights.fetches:
        if _execute_never(state, desc, privileged=rights.privileged):
            raise stage.refuse("EVT_A_PERMISSION", "execute-never", "execute never", addr=leaf.physical)
        return desc
    if rights.access.reads and not desc & _READ:
        raise stage.refuse("EVT_A_PERMISSION", "no-read", "the page is not readable", addr=leaf.physical)
    if rights.access.writes and not (desc & _WRITE or clean):
        raise stage.refuse("EVT_A_PERMISSION", "read-only-page", "the page is read-only", addr=leaf.physical)
    return desc | _WRITE if rights.access.writes and clean else desc


def _execute_never(state: State, desc: int, *, privileged: bool) -> bool:
    code = desc >> 53 & 3
    if not state.get("CAP3", "S2_EXEC_NEVER_CTRL"):
        return bool(code & 2)
    return {0: False, 1: privileged, 2: True, 3: not privileged}[code]


def _bad(text: str) -> Refusal:
    return Refusal("EVT_BAD_TECT", "stage2-geometry", "5.1", f"stage 2: {text}")
