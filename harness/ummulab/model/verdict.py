# SPDX-License-Identifier: GPL-2.0-or-later
"""What comes out of a resolution: steps, extents, updates, and the refusal with its event."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ummulab.layouts import Entry
from ummulab.model.state import Request
from ummulab.spec import load


class Outcome(enum.Enum):
    """How a request ends."""

    OK = "ok"
    FAULT = "fault"  # error to the initiator (section 10.1)
    RAZWI = "razwi"  # TCTE.FBA = 0: read as zero, write ignored (section 8.4)
    STALL = "stall"  # kept until CMD_STALL_RESUME (section 10.3)


@dataclass(frozen=True)
class Step:
    """One thing that was looked at.  ``entry`` is None for decisions made from registers or the request."""

    what: str
    section: str
    note: str
    entry: Entry | None = None

    @property
    def addr(self) -> int | None:
        """Guest address of the table entry, if one was read."""
        return self.entry.addr if self.entry else None


@dataclass(frozen=True)
class Extent:
    """``length`` bytes that are allowed and where they lie."""

    uba: int
    pa: int
    length: int


@dataclass(frozen=True)
class Update:
    """A descriptor that the hardware changes (access flag, dirty state), as 64-bit values."""

    addr: int
    old: int
    new: int


class Refusal(Exception):
    """The request is refused.

    ``code`` is the event code or None for a silent error; ``reason`` a stable short name of the rule (for
    tools), ``text`` the sentence for people.  ``detail`` holds what tools need to suggest a change.
    """

    def __init__(
        self,
        event: str | None,
        reason: str,
        section: str,
        text: str,
        *,
        cls: int = 0,
        s2: bool = False,
        ipa: int = 0,
        ftaddr: int = 0,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(text)
        self.event = event
        self.code = load().events[event].code if event else None
        self.reason = reason
        self.section = section
        self.text = text
        self.cls = cls
        self.s2 = s2
        self.ipa = ipa
        self.ftaddr = ftaddr
        self.detail = dict(detail or {})


#: Faults of the translation that FBS, FBR and FBA apply to (section 8.4).
TRANSLATION_FAULTS = frozenset({"EVT_A_TRANSLATION", "EVT_A_ADDR_SIZE", "EVT_ACCESS", "EVT_A_PERMISSION"})


@dataclass
class Verdict:
    """The answer.  ``extents`` is the allowed beginning of the request, merged where physically contiguous.

    ``refused_at`` is the first byte that is not allowed.  ``event`` holds the fields of the record that a
    device writes, or None if none is written.
    """

    request: Request
    outcome: Outcome = Outcome.OK
    extents: list[Extent] = field(default_factory=list)
    refused_at: int | None = None
    refusal: Refusal | None = None
    event: dict[str, int] | None = None
    steps: list[Step] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    @property
    def code(self) -> int:
        """Event code of the refusal; 0 if allowed or refused silently."""
        return self.event["CODE"] if self.event else 0

    @property
    def allowed_bytes(self) -> int:
        """Bytes from the start that are allowed."""
        return sum(e.length for e in self.extents)

    def add_extent(self, uba: int, pa: int, length: int) -> None:
        """Append a piece; grow the last extent if it is physically contiguous."""
        if self.extents:
            last = self.extents[-1]
            if last.pa + last.length == pa:
                self.extents[-1] = Extent(last.uba, last.pa, last.length + length)
                return
        self.extents.append(Extent(uba, pa, length))
