# SPDX-License-Identifier: GPL-2.0-or-later
"""One function per thing that ``ummulab decode`` prints: View and filters in, reports out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ummulab.decode import mapt, matt, queues, tables
from ummulab.decode.report import Report
from ummulab.decode.tables import Context, Entity
from ummulab.decode.view import Problem, View
from ummulab.errors import UserError
from ummulab.layouts import Entry
from ummulab.memory import Memory, MemoryReadError
from ummulab.model import Refusal, stage1, stage2
from ummulab.model.context import check_tcte
from ummulab.model.entity import ST_NESTED, ST_STAGE2
from ummulab.model.mapt import SHIFT, in_table_space, own_range
from ummulab.spec import load

#: Rows per context before a listing is cut (tables only; JSON has all).
LIST_LIMIT = 1000


@dataclass(frozen=True)
class Filter:
    """What to show; None means all."""

    eid: int | None = None
    tag: int | None = None
    tid: int | None = None
    va: int | None = None
    last: int = 16


def entities(view: View, wanted: Filter, problems: list[Problem]) -> Iterator[Entity]:
    """The entities that a filter names."""
    tag = wanted.tag
    if wanted.eid is not None:
        bound = (view.kv or {}).get(wanted.eid)
        if bound is None:
            known = ", ".join(f"{e:#x}" for e in sorted(view.kv or {})[:8]) or "none"
            raise UserError(f"EID {wanted.eid:#x} is not bound to a tag", hint=f"bound EIDs: {known}")
        tag = bound
    yield from tables.entities(view, problems, tag)


def contexts(view: View, wanted: Filter, problems: list[Problem]) -> Iterator[tuple[Entity, Context]]:
    """The contexts that a filter names, with their entities."""
    for entity in entities(view, wanted, problems):
        for context in tables.contexts(view, entity, problems, wanted.tid):
            yield entity, context


def regs(view: View, _wanted: Filter) -> list[Report]:
    """All registers with their non-zero fields."""
    report = Report("registers", ("name", "value", "fields"))
    for name, register in load().registers.items():
        if name in view.registers:
            value = view.registers[name]
            report.add(name=name, value=value, offset=register.offset, fields=register.unpack(value))
    banked = Report("command queue registers", ("name", "value"))
    for (name, number), value in sorted(view.banks.items(), key=lambda x: (x[0][1], x[0][0])):
        banked.add(name=f"{name}[{number}]", value=value)
    return [report, banked] if banked.rows else [report]


def tect(view: View, wanted: Filter) -> list[Report]:
    """Valid entities and the EIDs bound to them."""
    report = Report("TECT", ("tag", "eids", "addr", "fields"))
    for entity in entities(view, wanted, report.problems):
        report.add(entity.entry, tag=entity.tag, eids=[f"{e:#x}" for e in view.eids_of(entity.tag)])
    return [report]


def tct(view: View, wanted: Filter) -> list[Report]:
    """Valid contexts."""
    report = Report("TCT", ("tag", "tid", "addr", "check", "fields"))
    for entity, context in contexts(view, wanted, report.problems):
        report.add(
            context.entry, tag=entity.tag, tid=context.tid, check=_legal(view, entity.entry, context.entry)
        )
    return [report]


def _legal(view: View, tecte: Entry, tcte: Entry) -> str:
    try:
        check_tcte(view.state, tecte, tcte)
    except Refusal as refusal:
        return f"illegal: {refusal.text}"
    return "ok"


def matt_reports(view: View, wanted: Filter) -> list[Report]:
    """Translation tables: stage 1 of contexts, stage 2 of entities."""
    out = []
    problems: list[Problem] = []
    for entity in entities(view, wanted, problems):
        if entity.entry["ST_MODE"] in (ST_STAGE2, ST_NESTED) and wanted.tid is None:
            out.append(_stage2(view, entity, wanted))
        for context in tables.contexts(view, entity, problems, wanted.tid):
            out.append(_stage1(view, entity, context, wanted))
    return _with(out, problems, "MATT")


def _stage1(view: View, entity: Entity, context: Context, wanted: Filter) -> Report:
    title = f"MATT of tag {entity.tag:#x} TID {context.tid:#x}"
    tcte = context.entry
    if tcte["MATT_BYPASS"] or tcte["MATTWD"]:
        return _mappings(f"{title}: {'bypass' if tcte['MATT_BYPASS'] else 'walks disabled (MATTWD)'}")
    legal = _legal(view, entity.entry, tcte)
    if legal != "ok":
        report = _mappings(title)
        report.problems.append(Problem(title, tcte.addr, legal))
        return report
    dump = matt.dump(view.table_memory(entity.entry), stage1.geometry(view.state, tcte), path=title)
    return _list_mappings(title, dump, wanted.va)


def _stage2(view: View, entity: Entity, wanted: Filter) -> Report:
    title = f"stage 2 of tag {entity.tag:#x}"
    try:
        geo = stage2.geometry(view.state, entity.entry)
    except Refusal as refusal:
        report = _mappings(title)
        report.problems.append(Problem(title, entity.entry.addr, refusal.text))
        return report
    return _list_mappings(title, matt.dump(view.memory, geo, s2=True, path=title), wanted.va)


def _mappings(title: str) -> Report:
    return Report(title, ("va", "pa", "size", "leaves", "addr", "fields"))


def _list_mappings(title: str, dump: matt.Dump, va: int | None) -> Report:
    report = _mappings(f"{title}: {len(dump)} leaves in {dump.tables} tables")
    report.problems.extend(dump.problems)
    if va is not None and dump.geometry is not None:
        low = va & ((1 << dump.geometry.input_bits) - 1)
        for m in dump.mappings():
            if m.va <= low < m.va + m.size:
                report.add(m.entry, va=m.va, pa=m.pa, size=m.size, leaves=1)
        return report
    for run in dump.runs():
        report.add(run.first, va=run.va, pa=run.pa, size=run.size, leaves=run.leaves)
    return report


def mapt_reports(view: View, wanted: Filter) -> list[Report]:
    """Permission tables: the ranges, or with a VA the nodes on the way to it."""
    out = []
    problems: list[Problem] = []
    for entity, context in contexts(view, wanted, problems):
        tcte = context.entry
        title = f"MAPT of tag {entity.tag:#x} TID {context.tid:#x}"
        if not (tcte["MAPT_EN"] and entity.entry["MAPT_EN"]):
            out.append(Report(f"{title}: off", ()))
            continue
        memory = view.table_memory(entity.entry)
        if wanted.va is not None and tcte["MAPT_MODE"]:
            out.append(_nodes(memory, tcte, title, wanted.va))
        else:
            out.append(_ranges(view, memory, tcte, title, wanted.va))
    return _with(out, problems, "MAPT")


def _ranges(view: View, memory: Memory, tcte: Entry, title: str, va: int | None) -> Report:
    dump = mapt.dump(memory, tcte, free_bit=bool(view.state.get("CAP5", "FREE_BIT")), path=title)
    mode = "table" if tcte["MAPT_MODE"] else "single entry"
    report = Report(
        f"{title} ({mode}): {len(dump)} ranges in {dump.tables} tables",
        ("first", "last", "size", "rights", "token", "e_bit", "level", "addr"),
    )
    report.problems.extend(dump.problems)
    for r in dump.ranges():
        if va is None or r.first <= in_table_space(va) <= r.last:
            report.add(
                r.entry,
                **_rights(r.entry),
                first=r.first,
                last=r.last,
                size=r.last - r.first + 1,
                level=r.level,
            )
    return report


def _nodes(memory: Memory, tcte: Entry, title: str, va: int) -> Report:
    """Every node on the way to an address, whatever the walk's verdict; at most four."""
    addr = in_table_space(va)
    report = Report(
        f"{title}: nodes of {addr:#x}",
        ("level", "first", "last", "rights", "token", "e_bit", "addr", "words"),
    )
    walker = mapt.PathWalker(memory, tcte, title)
    for level, node in walker.nodes(addr):
        start = addr & -(1 << SHIFT[level])
        base, limit = own_range(node, level)
        report.add(node, level=level, first=start + base, last=start + limit, **_rights(node))
    report.problems.extend(walker.problems)
    return report


def _rights(node: Entry) -> dict[str, Any]:
    permission = node["PERMISSION"]
    letters = "".join(
        letter if permission >> bit & 1 else "-" for letter, bit in (("r", 1), ("w", 0), ("a", 2))
    )
    tokens = f"{node['TOKEN_VAL_0']:#x}/{node['TOKEN_VAL_1']:#x}" if node["TOKEN_CHK"] else "-"
    return {"rights": letters if node["V"] else "V=0", "token": tokens, "e_bit": node["E_BIT"]}


def queue_reports(view: View, wanted: Filter) -> list[Report]:
    """Command queues and user queues."""
    out = []
    for ring in queues.mcmdqs(view):
        report = Report(
            f"{ring.name}: {ring.entries} entries, {ring.pending} pending, PI {ring.producer:#x}, "
            f"CI {ring.consumer:#x}",
            ("index", "state", "command", "fields", "addr"),
        )
        for slot in queues.slots(view, ring, report.problems, wanted.last):
            fields = {k: v for k, v in slot.entry.fields.items() if k != "OPCODE"}
            report.add(
                slot.entry,
                index=slot.index,
                state="pending" if slot.pending else "done",
                command=_command(slot.entry),
            )
            report.rows[-1]["fields"] = fields
        out.append(report)
    users = Report("user queues", ("qid", "state", "addr", "fields"))
    for qid, entry in queues.user_contexts(view, users.problems):
        state = view.user_queues.get(qid, {}).get("state", "")
        users.add(entry, qid=qid, state=state)
    return [*out, users]


def _command(entry: Entry) -> str:
    opcode = entry["OPCODE"]
    known = [c.name for c in load().commands.values() if c.opcode == opcode]
    return known[0] if known else f"illegal {opcode:#04x}"


def eventq_reports(view: View, wanted: Filter) -> list[Report]:
    """Pending and recent events."""
    ring = queues.eventq(view)
    report = Report(
        f"EVENTQ: {ring.entries} entries, {ring.pending} pending, PI {ring.producer:#x}, "
        f"CI {ring.consumer:#x}",
        ("index", "state", "event", "fields", "addr"),
    )
    for slot in queues.slots(view, ring, report.problems, wanted.last):
        if wanted.tid is not None and slot.entry["TID"] != wanted.tid:
            continue
        report.add(
            slot.entry,
            index=slot.index,
            state="pending" if slot.pending else "read",
            event=load().event_name(slot.entry["CODE"]),
        )
        report.rows[-1]["fields"] = queues.event_fields(slot.entry)
    return [report]


def _with(reports: list[Report], problems: list[Problem], title: str) -> list[Report]:
    if problems or not reports:
        return [*reports, Report(title, (), problems=problems)]
    return reports


#: What ``ummulab decode`` knows.
KINDS: dict[str, Callable[[View, Filter], list[Report]]] = {
    "regs": regs,
    "tect": tect,
    "tct": tct,
    "matt": matt_reports,
    "mapt": mapt_reports,
    "queues": queue_reports,
    "eventq": eventq_reports,
}


def bus_error(err: MemoryReadError) -> UserError:
    """A read that no decoder expected to fail, as the user's one line."""
    return UserError(f"guest memory: {err}")
