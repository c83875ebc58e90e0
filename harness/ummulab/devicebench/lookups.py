# SPDX-License-Identifier: GPL-2.0-or-later
"""Cost of one translation inside QEMU, hit and miss, with few and with many ranges and TIDs."""

from __future__ import annotations

from ummulab.bench import Row
from ummulab.qtest.bench import PERIPHERAL, UMMU_DEVICE
from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import QtestMachine
from ummulab.qtest.memory import PAGE, Arena
from ummulab.qtest.tables import LEAF, MAPTE, Mapt, Matt, address_field
from ummulab.qtest.ummu import SPEC, CommandQueue, Registers, register_address

MANY = 100_000
LENGTH = 64
TOKEN = 0xC0FFEE
VA, TID = 0x4_0000_0000, 1
TAGS = 16  #: more than the caches of a miss hold
_RAM = 128 << 20
_TABLE = 512  # nodes or descriptors per table
_TECTE, _TCTE = SPEC.structures["TECTE"], SPEC.structures["TCTE"]
_ENABLE = 1 << 0 | 1 << 1 | 1 << 5  # UMMU_EN, EVENTQ_EN, MAPT_EN
_CTRL1 = 0x9D75  # the driver's value: EIDs are looked up in the key-value table
_EID = 0x100
#: Caches of one set each.  Requests of 16 tags in turn miss in all of them, and each miss fills a line.
_TINY_CACHES = "cfg-cache-entries=4,tlb-entries=4,plb-entries=4"
_COUNT_HIT, _COUNT_MISS = 2_000_000, 300_000


def measure_lookups(arch: str, repeat: int) -> list[Row]:
    """Rows of the look-ups, ns each; the baseline of a larger case is the same with one range and one TID."""
    with _LookupLab(arch, "", ranges=1, tids=1, tags=1) as lab:
        hit = lab.cost(_COUNT_HIT, repeat)
    miss = _miss(arch, repeat, 1, 1)
    ranges = _miss(arch, repeat, MANY, 1)
    tids = _miss(arch, repeat, 1, MANY)
    return [
        Row("lookup_hit", hit, "ns"),
        Row("lookup_miss", miss, "ns"),
        Row("lookup_miss_1e5_ranges", ranges, "ns", miss),
        Row("lookup_miss_1e5_tids", tids, "ns", miss),
    ]


def _miss(arch: str, repeat: int, ranges: int, tids: int) -> float:
    with _LookupLab(arch, _TINY_CACHES, ranges=ranges, tids=tids, tags=TAGS) as lab:
        return lab.cost(_COUNT_MISS, repeat)


class _LookupLab:
    """A UMMU alone: ``tags`` entities over one context table, ``tids`` contexts over one pair of MATT and MAPT.

    The contexts share their tables, since 10^5 of their own would need gigabytes; each look-up still reads a
    context of its own.
    """

    def __init__(self, arch: str, options: str, *, ranges: int, tids: int, tags: int) -> None:
        device = "ummu,id=ummu0" + ("," + options if options else "")
        self.machine = QtestMachine([device], arch=arch, ram_size=_RAM)
        self._sweep = (
            f"eid={_EID:#x},eids={tags},tid={TID},tids={tids},uba={VA:#x},pages={ranges},stride={PAGE}"
        )
        try:
            self._tables(ranges, tids, tags)
        except BaseException:
            self.machine.close()
            raise

    def __enter__(self) -> _LookupLab:
        return self

    def __exit__(self, *_error: object) -> None:
        self.machine.close()

    def _tables(self, ranges: int, tids: int, tags: int) -> None:
        arena = Arena(self.machine)
        matt, mapt, page = Matt(arena), Mapt(arena), arena.take(PAGE)
        node = MAPTE.pack(
            V=1, T=1, PERMISSION=3, LIMIT_LO=PAGE - 1, TOKEN_CHK=1, TOKEN_VAL_0=TOKEN, TOKEN_VAL_1=TOKEN
        )
        leaf = (page | LEAF | 3).to_bytes(8, "little")
        for first in range(0, ranges, _TABLE):
            count = min(_TABLE, ranges - first)
            arena.write(matt.entry(VA + first * PAGE, 3), leaf * count)
            arena.write(mapt.node(VA + first * PAGE, 3), node * count)
        log2 = max(6, (TID + tids).bit_length())
        tct = arena.take(_TCTE.size << log2)
        arena.write(tct + _TCTE.size * TID, _TCTE.pack(**_context(matt, mapt)) * tids)
        entity = _TECTE.pack(
            V=1, ST_MODE=5, PRIV_SEL=3, MAPT_EN=1, TCT_NUM=log2, TCT_PTR=address_field(_TECTE, "TCT_PTR", tct)
        )
        tect = arena.take(_TECTE.size * TAGS)
        arena.write(tect, entity * tags)
        regs = Registers(self.machine.function(UMMU_DEVICE))
        regs.write("CTRL1", _CTRL1)
        regs.write("TECT_BASE", register_address("TECT_BASE", "ADDR", tect))
        regs.write("TECT_BASE_CFG", (TAGS - 1).bit_length())
        commands = CommandQueue(regs, arena)
        self.machine.qtest.write_many(commands.enable_writes())
        for tag in range(tags):
            commands.put(
                SPEC.commands["CMD_CREATE_KVTBL"].pack(TECTE_TAG=tag, KV_INDEX=tag, EID_LOW=_EID + tag)
            )
        commands.ring_bell()
        commands.drain()
        regs.write("CTRL0", _ENABLE)

    def cost(self, count: int, repeat: int) -> float:
        """Nanoseconds of one look-up, best of several rounds after one that nobody counts."""
        request = f"{self._sweep},len={LENGTH},access=read,token={TOKEN:#x},count={count}"
        path, qmp = PERIPHERAL.format("ummu0"), self.machine.qmp
        costs: list[float] = []
        for _ in range(repeat + 1):
            qmp.qom_set(path, "benchmark-request", request)
            result = qmp.qom_get(path, "benchmark-result")
            if result["ok"] != count:
                raise QtestError(f"only {result['ok']} of {count} look-ups were allowed: {request}")
            costs.append(result["ns"] / count)
        return min(costs[1:])


def _context(matt: Matt, mapt: Mapt) -> dict[str, int]:
    return {
        "V": 1,
        "AA64": 1,
        "GPAS": 5,
        "SZ": 16,
        "FBR": 1,
        "FBA": 1,
        "ASH": 1,
        "MATTBA": address_field(_TCTE, "MATTBA", matt.root),
        "MAPT_EN": 1,
        "MAPT_MODE": 1,
        "RTGS": 1,
        "MAPT_BB_SZ": (mapt.block_bytes >> 12).bit_length() - 1,
        "MAPT_BBA": address_field(_TCTE, "MAPT_BBA", mapt.root),
        "MAPT_BTA": address_field(_TCTE, "MAPT_BTA", mapt.table),
    }
