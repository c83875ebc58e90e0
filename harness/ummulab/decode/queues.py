# SPDX-License-Identifier: GPL-2.0-or-later
"""Rings in memory: MCMDQ commands, events, user queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ummulab import layouts
from ummulab.decode.view import Problem, View
from ummulab.layouts import Entry
from ummulab.memory import MemoryReadError
from ummulab.spec import load

_LOG2_MAX = 19
_USER_QUEUES_MAX = 1 << 16


@dataclass(frozen=True)
class Ring:
    """Geometry of a ring: indexes carry the wrap bit at ``log2`` (section 7.1)."""

    name: str
    base: int
    log2: int
    producer: int
    consumer: int
    entry_bytes: int

    @property
    def entries(self) -> int:
        """Number of slots."""
        return 1 << self.log2

    @property
    def pending(self) -> int:
        """Entries between consumer and producer."""
        return (self.producer - self.consumer) & (2 * self.entries - 1)


@dataclass(frozen=True)
class Slot:
    """One ring entry; ``pending`` while the consumer has not passed it."""

    ring: Ring
    index: int
    pending: bool
    entry: Entry


def eventq(view: View) -> Ring:
    """The event queue as the registers describe it."""
    state = view.state
    log2 = min(state.get("EVENT_QUE_BASE", "LOG2SIZE"), _LOG2_MAX)
    base = (state.get("EVENT_QUE_BASE", "ADDR") << 5) & ~63
    return Ring(
        "EVENTQ",
        base,
        log2,
        state.get("EVENT_QUE_PI", "WR_IDX_WRAP"),
        state.get("EVENT_QUE_CI", "RD_IDX_WRAP"),
        64,
    )


def mcmdqs(view: View) -> Iterator[Ring]:
    """The command queues that have a base address."""
    spec = load().banks["MCMDQ"]
    fields = {f.name: f for r in spec.registers for f in r.fields}
    for number in range(1 << view.state.get("CAP1", "MCMDQ_NUMB")):
        raw = view.banks.get(("MCMDQ_BASE", number), 0)
        if not raw:
            continue
        yield Ring(
            f"MCMDQ{number}",
            fields["ADDR"].get(raw) << 5,
            min(fields["LOG2SIZE"].get(raw), _LOG2_MAX),
            fields["WR_IDX_WRAP"].get(view.banks.get(("MCMDQ_PI", number), 0)),
            fields["RD_IDX_WRAP"].get(view.banks.get(("MCMDQ_CI", number), 0)),
            32,
        )


def slots(view: View, ring: Ring, problems: list[Problem], last: int = 0) -> Iterator[Slot]:
    """The pending entries and, before them, up to ``last`` older ones that are not empty, oldest first."""
    try:
        data = view.memory.read(ring.base, ring.entries * ring.entry_bytes)
    except MemoryReadError as err:
        problems.append(Problem(ring.name, err.addr, err.reason))
        return
    pending = ring.pending
    if pending > ring.entries:
        problems.append(
            Problem(
                ring.name,
                ring.base,
                f"producer {ring.producer:#x} and consumer {ring.consumer:#x} "
                f"are {pending} entries apart in a ring of {ring.entries}",
            )
        )
        pending = ring.entries
    older = min(last, ring.entries - pending)
    for step in range(-older, pending):
        index = (ring.consumer + step) & (ring.entries - 1)
        raw = data[index * ring.entry_bytes : (index + 1) * ring.entry_bytes]
        if step >= 0 or any(raw):
            yield Slot(ring, index, step >= 0, _parse(ring, raw, index))


def _parse(ring: Ring, raw: bytes, index: int) -> Entry:
    addr = ring.base + index * ring.entry_bytes
    if ring.entry_bytes == 64:
        return layouts.parse("EVT", raw, addr, path=f"{ring.name}[{index}]")
    if ring.entry_bytes == 16:
        return layouts.parse("UCMD", raw, addr, path=f"{ring.name}[{index}]")
    return layouts.parse_command(raw, addr, path=f"{ring.name}[{index}]")


def event_fields(entry: Entry) -> dict[str, int]:
    """The fields that an event's code fills."""
    for event in load().events.values():
        if event.code == entry["CODE"]:
            return {name: entry[name] for name in event.filled}
    return {f.name: entry[f.name] for f in entry.layout.fields if not f.overlay and f.name != "CODE"}


def user_contexts(view: View, problems: list[Problem]) -> Iterator[tuple[int, Entry]]:
    """The user queue contexts that were ever opened, by queue id."""
    state = view.state
    base = state.get("MAPT_CMDQ_CTXT_BADDR", "ADDR") << 6
    count = min(1 << state.get("MAPT_CMDQ_CTXT_BADDR", "LOG2SIZE"), _USER_QUEUES_MAX)
    if not base:
        return
    try:
        data = view.memory.read(base, count * 64)
    except MemoryReadError as err:
        problems.append(Problem("user queue contexts", err.addr, err.reason))
        return
    words = layouts.bulk("MAPT_CMDQ_CTX", data)
    status = layouts.column("MAPT_CMDQ_CTX", words, "STATUS")
    for qid in status.nonzero()[0].tolist():
        row = tuple(int(w) for w in words[qid])
        yield qid, Entry(layouts.layout("MAPT_CMDQ_CTX"), base + qid * 64, row)


def user_ring(qid: int, context: Entry, indexes: dict[str, int] | None = None) -> Ring:
    """The command ring of a user queue; ``indexes`` from the device, else those in the context."""
    index = indexes or {"pi": context["UCMDQ_PI"], "ci": context["UCMDQ_CI"]}
    return Ring(
        f"UCMDQ{qid}", context["UCMDQ_BASE"] << 12, context["UCMDQ_QSIZE"], index["pi"], index["ci"], 16
    )
