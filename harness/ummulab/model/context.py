# SPDX-License-Identifier: GPL-2.0-or-later
"""Sections 5.2 and 5.3: from the TID to the context (TCTE), its legality and its E_bit."""

from __future__ import annotations

from ummulab.layouts import Entry
from ummulab.model.fetch import Trace, Translate
from ummulab.model.state import Request, State
from ummulab.model.verdict import Refusal

_S = "5.2"
_LINEAR, _SPLIT_64, _SPLIT_1024 = 0, 1, 2


def fetch_tcte(trace: Trace, tecte: Entry, tid: int, translate: Translate) -> Entry:
    """5.2 steps 1 to 5: read the TCTE.  ``translate`` is stage 2 in nested mode (step 4)."""
    num = tecte["TCT_NUM"]
    if num == 0 or tid >> num:
        raise Refusal(
            "EVT_BAD_TOKENID",
            "tid-range",
            _S,
            "TCT_NUM = 0" if num == 0 else f"TID {tid:#x} is not below 2^{num}",
        )
    fmt = tecte["TCT_FMT"]
    if fmt not in (_LINEAR, _SPLIT_64, _SPLIT_1024):
        raise Refusal("EVT_BAD_TECT", "tct-fmt", _S, f"TCT_FMT {fmt} is reserved")
    base = tecte["TCT_PTR"] << 6
    if fmt == _LINEAR:
        addr = base + tid * 64
    else:
        split = 6 if fmt == _SPLIT_64 else 10
        desc = trace.entry(
            "TCT_L1_DESC",
            translate(base + (tid >> split) * 8),
            "EVT_TCT_FETCH",
            f"level-1 TCT descriptor {tid >> split}",
            _S,
        )
        trace.note(f"level-1 TCT descriptor {tid >> split}", _S, f"V {desc['V']}", desc)
        if not desc["V"]:
            raise Refusal(
                "EVT_BAD_TOKENID", "tct-l1-invalid", _S, f"level-1 TCT descriptor {tid >> split} has V = 0"
            )
        addr = (desc["L2TCT_PTR"] << 12) + (tid & ((1 << split) - 1)) * 64
    tcte = trace.entry("TCTE", translate(addr), "EVT_TCT_FETCH", f"TCTE of TID {tid:#x}", _S)
    trace.note(f"TCTE of TID {tid:#x}", _S, f"V {tcte['V']}", tcte)
    if not tcte["V"]:
        raise Refusal("EVT_BAD_TCT", "tcte-invalid", _S, f"TCTE of TID {tid:#x} has V = 0")
    return tcte


def check_tcte(state: State, tecte: Entry, tcte: Entry) -> None:
    """5.2 step 5: illegal contents."""
    for reason, text in _illegal(state, tecte, tcte):
        raise Refusal("EVT_BAD_TCT", reason, _S, text)


def _illegal(state: State, tecte: Entry, tcte: Entry) -> list[tuple[str, str]]:
    bad = []
    if mapt_used(tecte, tcte) and tcte["MAPT_MODE"] == 1 and tcte["RTGS"] not in (1, 2):
        bad.append(("rtgs", f"RTGS {tcte['RTGS']} in table mode"))
    if tcte["HDF"] and not tcte["HAF"]:
        bad.append(("hdf-without-haf", "{HDF, HAF} = 2 is reserved"))
    if tcte["MAC_EN"]:
        bad.append(("mac-en", "MAC_EN = 1 is reserved"))
    if tcte["FBS"] and not stalls_possible(state, tecte):
        bad.append(("fbs", "FBS = 1 while stalls are forbidden"))
    if tcte["GPAS"] > 5:
        bad.append(("gpas", f"GPAS {tcte['GPAS']} is reserved"))
    if not tcte["MATT_BYPASS"]:
        bad.extend(_bad_geometry(state, tcte))
    return bad


def _bad_geometry(state: State, tcte: Entry) -> list[tuple[str, str]]:
    if not state.granule_supported(tcte["TGS"]):
        return [("granule", f"TGS {tcte['TGS']} is not supported")]
    lowest, highest = size_limits(state, tcte["TGS"])
    if not lowest <= tcte["SZ"] <= highest:
        return [("sz", f"SZ {tcte['SZ']} is not in {lowest}..{highest}")]
    return []


def size_limits(state: State, granule: int) -> tuple[int, int]:
    """Legal SZ/TSZ values of a granule code (48 or 52 input bits at most, small tables optional)."""
    wide = granule == 1 and state.get("CAP2", "VA_EXTEND") == 1
    small = 47 if granule == 1 else 48
    return 12 if wide else 16, small if state.get("CAP2", "SMALL_TRANS") else 39


def stalls_possible(state: State, tecte: Entry) -> bool:
    """10.3: CAP3.STALL_MODEL allows stalls and the entity does not forbid them (bit 56, choice 1)."""
    return state.get("CAP3", "STALL_MODEL") != 1 and not tecte["TCT_STALL_DISABLE"]


def mapt_used(tecte: Entry, tcte: Entry) -> bool:
    """5.4 without the register switch: both levels of tables ask for the permission check."""
    return bool(tecte["MAPT_EN"] and tcte["MAPT_EN"])


def check_e_bit(trace: Trace, tcte: Entry, request: Request) -> None:
    """5.3: a context with E_BIT = 1 is closed to requests with E_bit 0, before any table walk."""
    trace.note("context E_bit", "5.3", f"TCTE.E_BIT {tcte['E_BIT']}, request E_bit {request.e_bit}")
    if tcte["E_BIT"] and not request.e_bit:
        raise Refusal(
            "EVT_EBIT_DENY", "context-e-bit", "5.3", "the context admits only local initiators (E_bit 1)"
        )
