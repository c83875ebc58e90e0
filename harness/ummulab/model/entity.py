# SPDX-License-Identifier: GPL-2.0-or-later
"""Section 5.1: from the DstEID to the entity (TECTE)."""

from __future__ import annotations

from ummulab.layouts import Entry
from ummulab.model.fetch import Trace
from ummulab.model.state import Request, State
from ummulab.model.verdict import Refusal

_S = "5.1"
ST_BYPASS, ST_STAGE1, ST_STAGE2, ST_NESTED = 4, 5, 6, 7


def find_tag(state: State, trace: Trace, request: Request) -> int:
    """5.1 steps 2 and 3: DstEID to TECTE_TAG, bounded by TECT_BASE_CFG.LOG2SIZE."""
    if state.get("CTRL1", "TECT_MODE_SEL"):
        tag = state.kv.get(request.eid)
        if tag is None:
            raise _bad_dsteid("eid-unknown", f"EID {request.eid:#x} is not bound to a tag")
        trace.note("key-value look-up", _S, f"EID {request.eid:#x} is bound to tag {tag:#x}")
    else:
        # Choice 31: direct index; the bits above the tag must be 0.
        bits = state.get("CAP0", "DSTEID_SIZE")
        if request.eid >> bits:
            raise _bad_dsteid("eid-unknown", f"EID {request.eid:#x} has bits above the {bits} tag bits")
        tag = request.eid
        trace.note("direct index", _S, f"EID {request.eid:#x} is the tag itself")
    log2size = state.get("TECT_BASE_CFG", "LOG2SIZE")
    if tag >> log2size:
        raise _bad_dsteid("tag-range", f"tag {tag:#x} is not below 2^{log2size}")
    return tag


def fetch_tecte(state: State, trace: Trace, tag: int) -> Entry:
    """5.1 steps 4 to 6: read the TECTE (linear or two-level) and check it."""
    base = state.get("TECT_BASE", "ADDR") << 6
    linear = state.get("TECT_BASE_CFG", "FMT") == 0
    addr = base + tag * 64 if linear else _level2(state, trace, base, tag)
    tecte = trace.entry("TECTE", addr, "EVT_TECT_FETCH", f"TECTE of tag {tag:#x}", _S)
    trace.note(f"TECTE of tag {tag:#x}", _S, f"V {tecte['V']}, ST_MODE {tecte['ST_MODE']}", tecte)
    if not tecte["V"]:
        raise Refusal("EVT_BAD_TECT", "tecte-invalid", _S, f"TECTE of tag {tag:#x} has V = 0")
    _check_mode(state, tecte)
    return tecte


def _level2(state: State, trace: Trace, l1_base: int, tag: int) -> int:
    split = state.get("TECT_BASE_CFG", "SPLIT")
    desc = trace.entry(
        "TECT_L1_DESC",
        l1_base + (tag >> split) * 8,
        "EVT_TECT_FETCH",
        f"level-1 TECT descriptor {tag >> split}",
        _S,
    )
    trace.note(
        f"level-1 TECT descriptor {tag >> split}", _S, f"V {desc['V']}, 2^{desc['L2TECTE_NUM']} entries", desc
    )
    if not desc["V"]:
        # Choice 15: as for the TCT, not a fetch error.
        raise _bad_dsteid("tect-l1-invalid", f"level-1 TECT descriptor {tag >> split} has V = 0")
    index = tag & ((1 << split) - 1)
    if index >> desc["L2TECTE_NUM"]:
        raise _bad_dsteid("tect-l2-range", f"level-2 index {index} is not below 2^{desc['L2TECTE_NUM']}")
    return (desc["L2PTR"] << 6) + index * 64


def _check_mode(state: State, tecte: Entry) -> None:
    mode = tecte["ST_MODE"]
    if mode < ST_BYPASS:
        raise Refusal(None, "st-mode-abort", _S, f"ST_MODE {mode}: every request of this entity is aborted")
    stages = {ST_STAGE1: ("S1_TRANS",), ST_STAGE2: ("S2_TRANS",), ST_NESTED: ("S1_TRANS", "S2_TRANS")}
    for cap in stages.get(mode, ()):
        if not state.get("CAP2", cap):
            raise Refusal("EVT_BAD_TECT", "stage-unsupported", _S, f"ST_MODE {mode} needs CAP2.{cap}")


def effective(state: State, tecte: Entry, request: Request) -> tuple[bool, bool]:
    """5.1 step 7: (privileged, instruction) after PRIV_SEL and INST_SEL."""
    privileged, instruction = request.privileged, request.instruction
    if state.get("CAP0", "ATTR_PERMS_OVR"):
        privileged = {2: False, 3: True}.get(tecte["PRIV_SEL"], privileged)
        instruction = {2: False, 3: True}.get(tecte["INST_SEL"], instruction)
    return privileged, instruction


def _bad_dsteid(reason: str, text: str) -> Refusal:
    return Refusal("EVT_BAD_DSTEID", reason, _S, text)
