# SPDX-License-Identifier: GPL-2.0-or-later
"""Section 5: one request from the DstEID to physical addresses, and section 8.4/10: what a refusal becomes.

A request is decided byte by byte: its first refused byte counts, and for one byte the order is context E_bit,
MAPT, MATT (6.4), so a forbidden request is never stalled.  Bytes of one page and one node are one piece.
"""

from __future__ import annotations

import functools

from ummulab.layouts import Entry
from ummulab.memory import Memory
from ummulab.model import context, entity, mapt, stage1, stage2
from ummulab.model.fetch import Trace, Translate, identity
from ummulab.model.stage1 import Rights
from ummulab.model.state import Request, State
from ummulab.model.verdict import TRANSLATION_FAULTS, Outcome, Refusal, Verdict
from ummulab.spec import load

#: A request that needs more pieces than this is a mistake of the caller, not of the guest.
MAX_PIECES = 1 << 16


def resolve(memory: Memory, state: State, request: Request) -> Verdict:
    """The answer to one request.  Memory is only read; flag updates are listed in ``Verdict.updates``."""
    return Resolver(memory, state).resolve(request)


class Resolver:
    """Resolves requests on one memory image and one register state."""

    def __init__(self, memory: Memory, state: State) -> None:
        self.memory = memory
        self.state = state

    def resolve(self, request: Request) -> Verdict:
        """The answer to one request, with all steps."""
        return _Resolution(self.memory, self.state, request).run()


class _Resolution:
    def __init__(self, memory: Memory, state: State, request: Request) -> None:
        self.state = state
        self.request = request
        self.trace = Trace(memory)
        self.verdict = Verdict(request, steps=self.trace.steps, updates=self.trace.updates)
        self.tag: int | None = None
        self.tecte: Entry | None = None
        self.tcte: Entry | None = None
        self.rights = Rights(request.access, request.privileged, request.instruction)

    def run(self) -> Verdict:
        try:
            if not self.state.get("CTRL0", "UMMU_EN"):
                self._disabled()
            else:
                self._find_context()
                self._pieces()
        except Refusal as refusal:
            self._refuse(refusal)
        return self.verdict

    # ---------------------------------------------------------------- section 4
    def _disabled(self) -> None:
        if self.state.get("GBPA", "ABORT"):
            raise Refusal(None, "gbpa-abort", "4", "UMMU_EN = 0 and GBPA.ABORT = 1")
        self.trace.note("UMMU off", "4", "UMMU_EN = 0, GBPA.ABORT = 0: the address passes unchanged")
        self._allow_all()

    def _allow_all(self) -> None:
        self.verdict.add_extent(self.request.uba, self.request.uba, self.request.length)

    # ---------------------------------------------------------------- sections 5.1 to 5.3
    def _find_context(self) -> None:
        self.tag = entity.find_tag(self.state, self.trace, self.request)
        self.tecte = tecte = entity.fetch_tecte(self.state, self.trace, self.tag)
        privileged, instruction = entity.effective(self.state, tecte, self.request)
        self.rights = Rights(self.request.access, privileged, instruction)
        if self._stage2:
            stage2.geometry(self.state, tecte)  # illegal contents are found before any walk
        if tecte["ST_MODE"] not in (entity.ST_STAGE1, entity.ST_NESTED):
            return
        self.tcte = context.fetch_tcte(self.trace, tecte, self.request.tid, self._table(stage2.CLS_TCT))
        context.check_tcte(self.state, tecte, self.tcte)
        context.check_e_bit(self.trace, self.tcte, self.request)

    @property
    def _stage2(self) -> bool:
        return self.tecte is not None and self.tecte["ST_MODE"] in (entity.ST_STAGE2, entity.ST_NESTED)

    def _table(self, cls: int) -> Translate:
        """5.5: how the address of a table becomes physical."""
        if not self._stage2:
            return identity
        return functools.partial(self._through_stage2, write=False, cls=cls)

    def _through_stage2(self, addr: int, *, write: bool, cls: int) -> int:
        assert self.tecte is not None
        return stage2.table_access(self.state, self.trace, self.tecte, addr, write=write, cls=cls)

    # ---------------------------------------------------------------- sections 5.4 and 5.5
    def _pieces(self) -> None:
        assert self.tecte is not None
        if self.tecte["ST_MODE"] == entity.ST_BYPASS:
            self.trace.note("bypass", "5.1", "ST_MODE 4: output = input, no context, no MAPT")
            self._allow_all()
            return
        uba, left = self.request.uba, self.request.length
        for _ in range(MAX_PIECES):
            # A request of length 0 is translated at its address but needs no permission (section 5).
            covered = self._check_permission(uba, max(left, 1)) if left else 1
            pa, page = self._translate(uba)
            piece = min(left, covered, page)
            self.verdict.add_extent(uba, pa, piece)
            uba, left = uba + piece, left - piece
            if left == 0:
                return
        raise ValueError(f"the request needs more than {MAX_PIECES} pieces")

    def _check_permission(self, uba: int, left: int) -> int:
        """5.4: bytes from ``uba`` that the MAPT allows."""
        tecte, tcte = self.tecte, self.tcte
        assert tecte is not None
        if tcte is None or not self.state.get("CTRL0", "MAPT_EN") or not context.mapt_used(tecte, tcte):
            self.trace.note("MAPT", "5.4", "not consulted")
            return left
        return mapt.check(self.state, self.trace, tcte, self.request, uba, self._table(stage2.CLS_WALK))

    def _translate(self, uba: int) -> tuple[int, int]:
        """5.5: (physical address, bytes to the end of the page)."""
        addr, page = uba, (1 << 64) - uba
        if self.tcte is not None:
            addr, page = stage1.translate(
                self.state, self.trace, self.tcte, uba, self.rights, self._walk_access
            )
        if self._stage2:
            assert self.tecte is not None
            addr, page2 = stage2.translate(
                self.state, self.trace, self.tecte, addr, self.rights, stage2.CLS_INPUT
            )
            page = min(page, page2)
        return addr, page

    def _walk_access(self, addr: int, write: bool) -> int:
        if not self._stage2:
            return addr
        return self._through_stage2(addr, write=write, cls=stage2.CLS_WALK)

    # ---------------------------------------------------------------- sections 8.4 and 10
    def _refuse(self, refusal: Refusal) -> None:
        verdict = self.verdict
        verdict.refusal = refusal
        verdict.refused_at = self.request.uba + verdict.allowed_bytes
        verdict.outcome, recorded = self._policy(refusal)
        if recorded:
            verdict.event = self._event(refusal, stalled=verdict.outcome is Outcome.STALL)

    def _policy(self, refusal: Refusal) -> tuple[Outcome, bool]:
        """How the request ends and whether the event is recorded."""
        if refusal.event is None:
            return Outcome.FAULT, False
        if refusal.event == "EVT_BAD_DSTEID":
            return Outcome.FAULT, bool(self.state.get("CTRL1", "BAD_DSTEID_RECORD"))
        if refusal.event not in TRANSLATION_FAULTS:
            return Outcome.FAULT, True
        assert self.tecte is not None
        if refusal.s2:
            fbr, fbs, fba = self.tecte["S2_FBR"], self.tecte["S2_FBS"], 1
        else:
            assert self.tcte is not None
            fbr, fbs, fba = self.tcte["FBR"], self.tcte["FBS"], self.tcte["FBA"]
        if fbr and self._may_stall(fbs):
            return Outcome.STALL, True
        return (Outcome.FAULT if fba else Outcome.RAZWI), bool(fbr)

    def _may_stall(self, fbs: int) -> bool:
        """10.3 as far as tables and registers decide it (the number of stalled requests is the device's)."""
        assert self.tecte is not None
        forced = self.state.get("CAP3", "STALL_MODEL") == 2
        wanted = bool(fbs) or forced
        queue = bool(self.state.get("CTRL0", "EVENTQ_EN"))
        return (
            wanted and queue and context.stalls_possible(self.state, self.tecte) and not self.request.no_stall
        )

    def _event(self, refusal: Refusal, *, stalled: bool) -> dict[str, int]:
        """The record: the fields that the event code defines (10.2), others 0."""
        assert refusal.event is not None
        request = self.request
        known = {
            "TECTE_TAG": self.tag or 0,
            "TID": request.tid,
            "IADDR": self.verdict.refused_at or 0,
            "RNW": int(not request.access.writes),
            "IND": int(self.rights.instruction),
            "PNU": int(self.rights.privileged),
            "CLS": refusal.cls,
            "S2": int(refusal.s2),
            "IPA": (refusal.ipa >> 12) & ((1 << 40) - 1) if refusal.s2 else 0,
            "STALL": int(stalled),
            "STAG": 0,
            "FTADDR": (refusal.ftaddr >> 3) & ((1 << 49) - 1),
            "EID_LOW": request.eid & ((1 << 64) - 1),
            "EID_HIGH": request.eid >> 64,
        }
        spec = load().events[refusal.event]
        return {"CODE": spec.code, **{name: known[name] for name in spec.filled}}
