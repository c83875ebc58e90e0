# SPDX-License-Identifier: GPL-2.0-or-later
"""Section 8, stage 1: the context's own translation (TCTE: MATTBA, SZ, TGS, GPAS ...)."""

from __future__ import annotations

from dataclasses import dataclass

from ummulab.layouts import Entry
from ummulab.model.descriptor import (
    DBM,
    GRANULE_BITS,
    FlagPolicy,
    Geometry,
    Leaf,
    Stage,
    TableAccess,
    check_access_flag,
    stage1_start_level,
    store,
    walk,
)
from ummulab.model.fetch import Trace
from ummulab.model.state import SIZE_BITS, Access, State
from ummulab.model.verdict import Refusal

_AP_USER, _AP_READ_ONLY, _PXN, _UXN = 1 << 6, 1 << 7, 1 << 53, 1 << 54
_STAGE = Stage(s2=False, cls=2)


@dataclass(frozen=True)
class Rights:
    """Who wants to do what, after the TECTE's overrides."""

    access: Access
    privileged: bool
    instruction: bool

    @property
    def fetches(self) -> bool:
        """An instruction fetch: only reads can be one."""
        return self.instruction and self.access is Access.READ


def geometry(state: State, tcte: Entry) -> Geometry:
    """8.1: input size 64 - SZ, granule TGS, output size GPAS (and never more than CAP2.OA_SIZE)."""
    granule, bits = GRANULE_BITS[tcte["TGS"]], 64 - tcte["SZ"]
    level = stage1_start_level(bits, granule)
    first = Geometry(0, granule, bits, level, 0, False).index_bits(level)
    align = max(64, 8 << first)  # a start table is aligned to its size
    base = (tcte["MATTBA"] << 4) & ~(align - 1)
    return Geometry(
        base, granule, bits, level, min(SIZE_BITS[tcte["GPAS"]], state.output_bits), bool(tcte["ENDI"])
    )


def translate(
    state: State, trace: Trace, tcte: Entry, uba: int, rights: Rights, access: TableAccess
) -> tuple[int, int]:
    """(output address, bytes up to the end of the page) of ``uba``; Refusal otherwise."""
    if tcte["MATT_BYPASS"]:
        trace.note("stage 1", "8.3", "MATT_BYPASS: output = input")
        return uba, (1 << 64) - uba
    geo = geometry(state, tcte)
    addr = reduce_input(geo.input_bits, uba)
    if tcte["MATTWD"]:
        # No cache in this model, so every access is the miss that MATTWD turns into a fault.
        raise _STAGE.refuse("EVT_A_TRANSLATION", "walk-disabled", "MATTWD = 1: no table walk (dying context)")
    leaf = walk(trace, geo, addr, _STAGE, access)
    policy = FlagPolicy.of(tcte["HAF"], tcte["AFFD"], tcte["HDF"], state.httu)
    desc = check_access_flag(leaf, _STAGE, policy)
    desc = _check_rights(tcte, leaf, desc, rights, policy)
    store(trace, geo, leaf, desc, access)
    offset = addr & ((1 << leaf.shift) - 1)
    trace.note("stage 1", "8.3", f"{uba:#x} -> {leaf.base + offset:#x}, page of {1 << leaf.shift:#x} bytes")
    return leaf.base + offset, (1 << leaf.shift) - offset


def reduce_input(bits: int, uba: int) -> int:
    """8.2: the low bits; the bits above them all 0 or all 1 (choice 13)."""
    upper = uba >> bits
    if upper not in (0, (1 << (64 - bits)) - 1):
        raise _STAGE.refuse("EVT_A_TRANSLATION", "input-size", f"{uba:#x} is not a {bits}-bit address")
    return uba & ((1 << bits) - 1)


def _check_rights(tcte: Entry, leaf: Leaf, desc: int, rights: Rights, policy: FlagPolicy) -> int:
    """8.3 permissions; returns the descriptor with a dirty update if one is due."""
    hier = 0 if tcte["HAD"] else leaf.ap_table
    user = bool(desc & _AP_USER) and not hier & 1
    clean = bool(desc & _AP_READ_ONLY and desc & DBM and policy.dirty)
    writable = (not desc & _AP_READ_ONLY or clean) and not hier & 2
    if rights.fetches:
        _check_execute(tcte, leaf, rights, user=user, writable=writable)
        return desc
    if not rights.privileged and not user:
        raise _refuse("user", "an unprivileged access to a privileged page", leaf)
    # PAN looks at the leaf's user bit, whatever the tables above say.
    if rights.privileged and tcte["PAN"] and user:
        raise _refuse("pan", "PAN = 1: a privileged access to a user page", leaf)
    if rights.access.writes and not writable:
        raise _refuse("read-only-page", "the page is read-only", leaf)
    return desc & ~_AP_READ_ONLY if rights.access.writes and clean else desc


def _check_execute(tcte: Entry, leaf: Leaf, rights: Rights, *, user: bool, writable: bool) -> None:
    tables = not tcte["HAD"]
    if rights.privileged:
        never = bool(leaf.desc & _PXN) or (tables and leaf.pxn_table)
        never = never or bool(tcte["WXN"] and writable) or bool(tcte["UWXN"] and user and writable)
    else:
        never = not user or bool(leaf.desc & _UXN) or (tables and leaf.xn_table)
        never = never or bool(tcte["WXN"] and writable)
    if never:
        raise _refuse("execute-never", "execute never", leaf)


def _refuse(reason: str, text: str, leaf: Leaf) -> Refusal:
    return _STAGE.refuse("EVT_A_PERMISSION", reason, text, addr=leaf.physical, desc=leaf.desc)
