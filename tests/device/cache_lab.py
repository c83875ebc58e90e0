# SPDX-License-Identifier: GPL-2.0-or-later
"""A UMMU alone with many entities and contexts, asked by real requests, so that its caches fill and can be watched."""

from __future__ import annotations

from dataclasses import dataclass, field

from core_helper import EVENTQ_EN, MAPT_EN, UMMU_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE
from ummulab.qtest.tables import Mapt, Matt, address_field
from ummulab.qtest.ummu import SPEC, register_address

TECTE, TCTE = SPEC.structures["TECTE"], SPEC.structures["TCTE"]
LOG2_TAGS = 9
EL1, EL2 = 0, 2  # TECTE.TCRC_SEL


@dataclass
class Entity:
    """One tag and its two-level context table (1024 contexts per second-level table)."""

    tag: int
    l1: int
    fields: dict[str, int]
    l2: dict[int, int] = field(default_factory=dict)


class CacheLab:
    """EIDs are tags.  :meth:`ask` makes one real request; counters tell what it found in the caches."""

    def __init__(self, machine: QtestMachine, *, ctrl2: int | None = None) -> None:
        self.core = Core(machine)
        self.core.start()
        self.arena = self.core.arena
        self.tect = self.arena.take(64 << LOG2_TAGS)
        self.matt, self.mapt = Matt(self.arena), Mapt(self.arena)
        self.entities: dict[int, Entity] = {}
        regs = self.core.regs
        regs.write("CTRL0", 0)
        regs.write("CTRL1", 0x1D75)
        if ctrl2 is not None:
            regs.write("CTRL2", ctrl2)
        regs.write("TECT_BASE", register_address("TECT_BASE", "ADDR", self.tect))
        regs.write("TECT_BASE_CFG", LOG2_TAGS)
        regs.write("CTRL0", UMMU_EN | EVENTQ_EN | MAPT_EN)

    def entity(self, tag: int, **changes: int) -> Entity:
        """Make or change an entity."""
        one = self.entities.get(tag) or Entity(tag, self.arena.take(8 << 10), {})
        self.entities[tag] = one
        one.fields = {
            "V": 1, "ST_MODE": 5, "PRIV_SEL": 3, "MAPT_EN": 1, "TCT_NUM": 20, "TCT_FMT": 2,
            "TCT_PTR": address_field(TECTE, "TCT_PTR", one.l1),
        } | changes  # fmt: skip
        self.arena.write(self.tect + 64 * tag, TECTE.pack(**one.fields))
        return one

    def context(
        self, tag: int, tid: int, *, matt: Matt | None = None, mapt: Mapt | None = None, **changes: int
    ) -> int:
        """Write a context (with a permission table only if one is given); its address."""
        one = self.entities[tag]
        if tid >> 10 not in one.l2:
            one.l2[tid >> 10] = self.arena.take(64 << 10, 64 << 10)
            self.arena.write_word(one.l1 + 8 * (tid >> 10), one.l2[tid >> 10] | 1)
        table = matt or self.matt
        fields = {
            "V": 1, "AA64": 1, "GPAS": 5, "SZ": 64 - table.va_bits, "FBR": 1, "FBA": 1, "ASH": 1,
            "TGS": {12: 0, 16: 1, 14: 2}[table.shift], "MATTBA": address_field(TCTE, "MATTBA", table.root),
        }  # fmt: skip
        if mapt:
            fields |= {
                "MAPT_EN": 1, "MAPT_MODE": 1, "RTGS": 1, "MAPT_BB_SZ": 4,
                "MAPT_BBA": address_field(TCTE, "MAPT_BBA", mapt.root),
                "MAPT_BTA": address_field(TCTE, "MAPT_BTA", mapt.table),
            }  # fmt: skip
        at = one.l2[tid >> 10] + 64 * (tid & 1023)
        self.arena.write(at, TCTE.pack(**(fields | changes)))
        return at

    def page(self) -> int:
        """A fresh data page."""
        return self.arena.take(PAGE)

    # ---- requests ------------------------------------------------------------------------------------------------

    def ask(self, uba: int, *, tag: int, tid: int = 1, access: str = "read", token: int | None = None,
            length: int = 8) -> bool:  # fmt: skip
        """One real request; True if it was allowed."""
        text = f"eid={tag:#x},tid={tid:#x},uba={uba:#x},len={length},access={access},e-bit=1"
        text += f",token={token:#x}" if token is not None else ""
        return bool(self.core.ask("benchmark-request", text, "benchmark-result")["ok"])

    def where(self, uba: int, *, tag: int, tid: int = 1) -> int:
        """Physical address that a request would get now, from the caches where they know it; changes nothing."""
        text = f"eid={tag:#x},tid={tid:#x},uba={uba:#x},e-bit=1"
        result = self.core.ask("translate-request", text, "translate-result")
        assert result["status"] == "ok", result
        pa: int = result["pa"]
        return pa

    def counters(self) -> dict[str, int]:
        """All counters."""
        values: dict[str, int] = self.core.qom("counters")
        return values

    def count(self, name: str) -> int:
        """One counter."""
        number: int = self.core.qom(name)
        return number

    def used(self, cache: str) -> int:
        """Lines in use: "cfg", "tlb" or "plb"."""
        number: int = self.core.qom("caches")[f"{cache}-used"]
        return number

    def hits(self, cache: str, uba: int, **who: int) -> bool:
        """Ask once; True if the cache had what the request needed (and the request was allowed)."""
        before = self.count(f"{cache}-misses")
        assert self.ask(uba, **who)  # type: ignore[arg-type]
        return self.count(f"{cache}-misses") == before

    def command(self, name: str, **fields: int) -> None:
        """One command and CMD_SYNC."""
        self.core.put(name, **fields)
        self.core.put("CMD_SYNC")
        self.core.mcmdq.ring_bell()
        self.core.mcmdq.drain()
