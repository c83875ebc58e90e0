# SPDX-License-Identifier: GPL-2.0-or-later
"""Why an access is allowed or refused: steps, the shortest change that would allow it, the device's word."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ummulab.decode import mapt, tables
from ummulab.decode.view import DeviceAnswer, Problem, View
from ummulab.model import Access, Outcome, Request, Verdict, resolve
from ummulab.model.mapt import in_table_space
from ummulab.spec import load


@dataclass
class Explanation:
    """A verdict with what people want to know about it."""

    verdict: Verdict
    change: str = ""
    nearest: list[str] = field(default_factory=list)
    device: DeviceAnswer | None = None
    agrees: bool | None = None
    difference: str = ""


def explain(view: View, request: Request, *, ask_device: bool = True) -> Explanation:
    """Resolve a request with the model, look for a change that would allow it, and ask the device."""
    verdict = resolve(view.memory, view.state, request)
    out = Explanation(verdict)
    if verdict.refusal is not None:
        out.change = _change(view, verdict)
        out.nearest = _nearest(view, verdict)
    if ask_device and view.probe is not None:
        out.device = view.probe(request)
        out.difference = disagreement(verdict, out.device)
        out.agrees = not out.difference
    return out


_STATUS = {Outcome.OK: "ok", Outcome.FAULT: "fault", Outcome.RAZWI: "razwi", Outcome.STALL: "fault"}


def disagreement(verdict: Verdict, answer: DeviceAnswer) -> str:
    """How a device's probe differs from the model; "" if it does not.

    A probe answers for the first piece of a request only and reports what would stall as a fault.
    """
    said = f"{answer.status} {answer.event or '(silent)'}"
    if verdict.extents and verdict.allowed_bytes:
        first = verdict.extents[0]
        if answer.status != "ok":
            return f"model allows {verdict.allowed_bytes} bytes, device: {said}"
        if answer.pa != first.pa:
            return f"model gives {first.pa:#x}, device {answer.pa:#x}"
        if not 0 < answer.length <= first.length:
            return f"device covers {answer.length} bytes, model {first.length}"
        return ""
    if verdict.outcome is Outcome.OK:  # length 0
        return "" if answer.status == "ok" else f"model allows, device: {said}"
    want = load().event_name(verdict.code) if verdict.code else ""
    if (answer.status, answer.event) != (_STATUS[verdict.outcome], want):
        return f"model: {_STATUS[verdict.outcome]} {want or '(silent)'}, device: {said}"
    if answer.status == "fault" and want and answer.fault_addr != verdict.refused_at:
        return f"model refuses at {verdict.refused_at:#x}, device at {answer.fault_addr:#x}"
    return ""


# ------------------------------------------------------------------ the shortest change
def _change(view: View, verdict: Verdict) -> str:
    """The smallest change of the request, else of the tables, that would allow it; verified by the model."""
    for text, request in _candidates(verdict):
        if resolve(view.memory, view.state, request).outcome is Outcome.OK:
            return text
    assert verdict.refusal is not None
    return _table_change(verdict)


def _candidates(verdict: Verdict) -> list[tuple[str, Request]]:
    request, refusal = verdict.request, verdict.refusal
    assert refusal is not None and verdict.refused_at is not None
    out: list[tuple[str, Request]] = []
    reason = refusal.reason
    for token in dict.fromkeys(refusal.detail.get("tokens", ())):
        have = "no token" if request.token is None else f"token {request.token:#x}"
        out.append(
            (
                f"wrong token: the grant wants {token:#x}, the request has {have}",
                replace(request, token=token),
            )
        )
    if reason in ("context-e-bit", "node-e-bit"):
        out.append(("E_bit: send it as a trusted local request (E_bit 1)", replace(request, e_bit=1)))
    if reason == "access-type":
        out.extend(_other_access(request, refusal.detail["permission"]))
    if verdict.allowed_bytes:
        over = request.length - verdict.allowed_bytes
        out.append(
            (
                f"{_bytes(over)} past the end: the first {verdict.allowed_bytes} are allowed",
                replace(request, length=verdict.allowed_bytes),
            )
        )
    first = refusal.detail.get("first")
    if reason == "out-of-range" and isinstance(first, int):
        out.extend(_moved(request, verdict.refused_at, first, refusal.detail["last"]))
    if reason in ("user", "execute-never", "s2-execute-never"):
        out.append(
            (
                "privilege: send it as a privileged data access",
                replace(request, privileged=True, instruction=False),
            )
        )
    if reason in ("read-only-page", "s2-read-only-page"):
        out.append(("the page is read-only: reads are allowed", replace(request, access=Access.READ)))
    if reason == "input-size":
        out.append(
            ("the address has bits above the input size", replace(request, uba=in_table_space(request.uba)))
        )
    return out


def _other_access(request: Request, permission: int) -> list[tuple[str, Request]]:
    names = {Access.READ: ("read", 1), Access.WRITE: ("write", 0), Access.ATOMIC: ("atomic", 2)}
    allowed = [a for a, (_, bit) in names.items() if permission >> bit & 1]
    what = " and ".join(names[a][0] for a in allowed)
    head = "read-only" if allowed == [Access.READ] else f"{names[request.access][0]} is not granted"
    return [(f"{head}: the grant allows {what}", replace(request, access=a)) for a in allowed]


def _moved(request: Request, at: int, first: int, last: int) -> list[tuple[str, Request]]:
    """The whole request shifted into the range it missed."""
    addr = in_table_space(at)
    upper = request.uba - in_table_space(request.uba)
    if last - first + 1 < request.length:
        return []
    if addr < first:
        return [
            (
                f"{_bytes(first - addr)} before the start of the grant at {first:#x}",
                replace(request, uba=upper + first),
            )
        ]
    over = addr + request.length - 1 - last
    return [
        (
            f"{_bytes(over)} past the end of the grant at {last:#x}",
            replace(request, uba=upper + last + 1 - request.length),
        )
    ]


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


_TABLE_CHANGES = {
    "no-grant": "not granted: ummu_grant() this range to the TID",
    "out-of-range": "not granted: ummu_grant() this range to the TID",
    "access-type": "the grant allows no access of this kind: grant with other rights",
    "no-mapping": "no page is mapped at this address: touch it, or map it",
    "walk-disabled": "the process behind this TID is gone (MATTWD)",
    "eid-unknown": "bind the EID to a tag (CMD_CREATE_KVTBL)",
    "tecte-invalid": "the entity is not set up: write its TECTE and send CMD_CFGI_TECT",
    "tcte-invalid": "no such TID: allocate it",
    "tid-range": "no such TID: it is beyond the context table",
    "tct-l1-invalid": "no such TID: allocate it",
    "gbpa-abort": "the UMMU is off and aborts (GBPA.ABORT): enable it",
    "st-mode-abort": "the entity is set to abort (ST_MODE)",
    "access-flag": "the page was not touched yet: access it from the CPU, or enable hardware updates (HAF)",
    "pan": "PAN forbids privileged access to user pages",
}


def _table_change(verdict: Verdict) -> str:
    assert verdict.refusal is not None
    reason = verdict.refusal.reason
    if reason in _TABLE_CHANGES:
        return _TABLE_CHANGES[reason]
    return f"correct the tables ({verdict.refusal.text})"


def _nearest(view: View, verdict: Verdict) -> list[str]:
    """The grants closest to an address that has none."""
    refusal, request = verdict.refusal, verdict.request
    assert refusal is not None and verdict.refused_at is not None
    if refusal.reason not in ("no-grant", "out-of-range"):
        return []
    problems: list[Problem] = []
    tag = (view.kv or {}).get(request.eid, request.eid)
    addr = in_table_space(verdict.refused_at)
    out = []
    for entity in tables.entities(view, problems, tag):
        for context in tables.contexts(view, entity, problems, request.tid):
            dump = mapt.dump(
                view.table_memory(entity.entry),
                context.entry,
                free_bit=bool(view.state.get("CAP5", "FREE_BIT")),
            )
            out += [f"[{r.first:#x}, {r.last:#x}] {_distance(addr, r)}" for r in dump.near(addr)]
    return out


def _distance(addr: int, found: mapt.Range) -> str:
    if found.first <= addr <= found.last:
        return "covers it"
    if addr < found.first:
        return f"starts {found.first - addr} bytes above"
    return f"ends {addr - found.last} bytes below"


# ------------------------------------------------------------------ presentation
def sentence(verdict: Verdict) -> str:
    """The verdict in one line."""
    request = verdict.request
    what = f"{request.access.name.lower()} of {request.length} bytes at {request.uba:#x}"
    if verdict.refusal is None:
        where = ", ".join(f"{e.pa:#x} ({e.length})" for e in verdict.extents[:4])
        more = f" and {len(verdict.extents) - 4} more" if len(verdict.extents) > 4 else ""
        return f"ALLOWED: {what} -> {where}{more}"
    name = verdict.refusal.event or "no event"
    how = {Outcome.STALL: "STALLED", Outcome.RAZWI: "READ AS ZERO / WRITE IGNORED"}.get(
        verdict.outcome, "REFUSED"
    )
    silent = "" if verdict.event or verdict.refusal.event is None else ", not recorded"
    code = f" ({verdict.refusal.code:#04x}{silent})" if verdict.refusal.code is not None else ""
    return f"{how}: {what}: {name}{code}, section {verdict.refusal.section}: {verdict.refusal.text}"


def as_json(out: Explanation) -> dict[str, Any]:
    """An explanation as one JSON object."""
    v = out.verdict
    return {
        "outcome": v.outcome.value,
        "event": v.refusal.event if v.refusal else None,
        "code": v.code,
        "reason": v.refusal.reason if v.refusal else None,
        "section": v.refusal.section if v.refusal else None,
        "text": sentence(v),
        "refused_at": v.refused_at,
        "extents": [{"uba": e.uba, "pa": e.pa, "length": e.length} for e in v.extents],
        "record": v.event,
        "steps": [
            {
                "what": s.what, "section": s.section, "note": s.note, "addr": s.addr,
                "words": s.entry.hex_words() if s.entry else [], "fields": s.entry.fields if s.entry else {},
            }
            for s in v.steps
        ],
        "updates": [{"addr": u.addr, "old": u.old, "new": u.new} for u in v.updates],
        "change": out.change,
        "nearest": out.nearest,
        "device": None if out.device is None else vars(out.device),
        "agrees": out.agrees,
        "difference": out.difference,
    }  # fmt: skip
