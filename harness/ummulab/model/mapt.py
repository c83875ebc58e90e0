# SPDX-License-Identifier: GPL-2.0-or-later
"""Section 6: the permission check by byte range (MAPT)."""

from __future__ import annotations

from dataclasses import dataclass

from ummulab.layouts import Entry
from ummulab.model.fetch import Trace, Translate
from ummulab.model.state import SIZE_BITS, Access, Request, State
from ummulab.model.verdict import Refusal

ADDRESS_BITS = 48
NODE_BYTES, LEVEL_BYTES, LEVEL_NODES = 32, 512 * 32, 512
SHIFT = (39, 30, 21, 12)  # level index at UBA[shift + 8 : shift]; a node of that level spans 2^shift bytes
FREED = 0xFFF  # BASE = LIMIT = 0xFFF with PERMISSION 0: an empty own range (6.2, choice 6)
_SIZE_CODE_MAX = 9
_PERMISSION_BIT = {Access.WRITE: 0, Access.READ: 1, Access.ATOMIC: 2}


@dataclass(frozen=True)
class Hit:
    """The node that decides an address, and the last UBA[47:0] that it covers."""

    node: Entry
    level: int
    first: int
    last: int


@dataclass(frozen=True)
class _Block:
    base: int
    size: int


def in_table_space(uba: int) -> int:
    """UBA[47:0], the address space of permission tables (section 6)."""
    return uba & ((1 << ADDRESS_BITS) - 1)


def check(state: State, trace: Trace, tcte: Entry, request: Request, uba: int, translate: Translate) -> int:
    """Bytes from ``uba`` that the deciding node allows (at least 1); Refusal otherwise."""
    addr = in_table_space(uba)
    hit = (
        _single(trace, tcte, addr, translate)
        if tcte["MAPT_MODE"] == 0
        else _walk(state, trace, tcte, addr, translate)
    )
    check_node(trace, hit, request)
    return hit.last - addr + 1


def _single(trace: Trace, tcte: Entry, addr: int, translate: Translate) -> Hit:
    """6.1: one entry, absolute and inclusive limits."""
    base = tcte["MAPT_BBA"] << 5
    _inside_output(tcte, base, NODE_BYTES, "MAPT entry")
    node = trace.entry(
        "UMAPTE", translate(base), "EVT_P_PTW_EABT", "MAPT entry", "6.1", big=bool(tcte["ENDI"])
    )
    first, last = node.join("BASE_LO", "BASE_HI"), node.join("LIMIT_LO", "LIMIT_HI")
    trace.note("MAPT entry", "6.1", f"V {node['V']}, [{first:#x}, {last:#x}]", node)
    if not node["V"]:
        raise _no_permission("no-grant", "6.1", "the MAPT entry has V = 0")
    if not first <= addr <= last:
        raise _no_permission(
            "out-of-range", "6.1", f"{addr:#x} is outside [{first:#x}, {last:#x}]", first=first, last=last
        )
    return Hit(node, 0, first, last)


def _walk(state: State, trace: Trace, tcte: Entry, addr: int, translate: Translate) -> Hit:
    """6.2: at each level the node's own range wins; outside it the walk goes down, at most four levels."""
    last_level = 3 if tcte["RTGS"] == 1 else 2
    block = _checked_block(tcte, _Block(tcte["MAPT_BBA"] << 5, _size(tcte["MAPT_BB_SZ"])), "base block")
    offset = 0
    for level in range(last_level + 1):
        node = _node(trace, tcte, block, offset, level, addr, translate)
        if not node["V"]:
            raise _no_permission("no-grant", "6.2", f"level {level} node has V = 0", level=level)
        base, limit = own_range(node, level)
        inside = addr & ((1 << SHIFT[level]) - 1)
        start = addr - inside
        if not is_free(state, node) and base <= inside <= limit:
            return Hit(node, level, start + base, start + limit)
        if node["T"] or level == last_level:
            if is_free(state, node):
                raise _no_permission(
                    "no-grant", "6.2", f"level {level} node has no range of its own", level=level
                )
            raise _no_permission(
                "out-of-range",
                "6.2",
                f"{addr:#x} is outside [{start + base:#x}, {start + limit:#x}]",
                first=start + base,
                last=start + limit,
            )
        if node["N"]:
            block = _next_block(trace, tcte, node["NEXT_LV_INDEX"], translate)
        offset = node.join("NEXT_LV_OFFSET_LO", "NEXT_LV_OFFSET_HI") * NODE_BYTES
    raise AssertionError("the last level always decides")


def own_range(node: Entry, level: int) -> tuple[int, int]:
    """BASE and LIMIT inside the node's span; only the bits valid at this level count."""
    mask = (1 << SHIFT[level]) - 1
    return node.join("BASE_LO", "BASE_HI") & mask, node.join("LIMIT_LO", "LIMIT_HI") & mask


def is_free(state: State, node: Entry) -> bool:
    """6.2 ``freed(node)`` and, with CAP5.FREE_BIT, the node's F_BIT: no own range."""
    if state.get("CAP5", "FREE_BIT") and node["F_BIT"]:
        return True
    return (
        node.join("BASE_LO", "BASE_HI") == FREED
        and node.join("LIMIT_LO", "LIMIT_HI") == FREED
        and node["PERMISSION"] == 0
    )


def _node(
    trace: Trace, tcte: Entry, block: _Block, offset: int, level: int, addr: int, translate: Translate
) -> Entry:
    if offset % LEVEL_BYTES:
        raise _config(
            "table-offset", f"level {level} table offset {offset:#x} is not a multiple of 512 nodes"
        )
    if offset + LEVEL_BYTES > block.size:
        raise _config(
            "table-offset",
            f"level {level} table at offset {offset:#x} is not inside its block of {block.size:#x} bytes",
        )
    index = addr >> SHIFT[level] & (LEVEL_NODES - 1)
    where = translate(block.base + offset + index * NODE_BYTES)
    what = f"MAPT level {level} node {index}"
    node = trace.entry("MAPTE", where, "EVT_P_PTW_EABT", what, "6.2", big=bool(tcte["ENDI"]))
    base, limit = own_range(node, level)
    trace.note(
        what, "6.2", f"V {node['V']}, T {node['T']}, N {node['N']}, own range [{base:#x}, {limit:#x}]", node
    )
    return node


def _next_block(trace: Trace, tcte: Entry, index: int, translate: Translate) -> _Block:
    """6.2: N = 1 looks in the block table (choice 5)."""
    table = _Block(tcte["MAPT_BTA"] << 5, _size(tcte["MAPT_BT_SZ"]))
    _inside_output(tcte, table.base, table.size, "MAPT block table")
    if index >= table.size // 8:
        raise _config("block-index", f"block index {index} is not below {table.size // 8}")
    what = f"MAPT block descriptor {index}"
    desc = trace.entry(
        "MAPT_BLOCK_DESC",
        translate(table.base + index * 8),
        "EVT_P_PTW_EABT",
        what,
        "6.2",
        big=bool(tcte["ENDI"]),
    )
    trace.note(what, "6.2", f"V {desc['V']}, {desc['BA'] << 5:#x}, 4 KiB << {desc['BS']}", desc)
    if not desc["V"]:
        raise _config("block-invalid", f"block descriptor {index} has V = 0")
    if desc["BS"] > _SIZE_CODE_MAX:
        raise _config("block-size", f"block size code {desc['BS']} is not in 0..{_SIZE_CODE_MAX}")
    return _checked_block(tcte, _Block(desc["BA"] << 5, _size(desc["BS"])), f"block {index}")


def _checked_block(tcte: Entry, block: _Block, what: str) -> _Block:
    if block.size > _size(_SIZE_CODE_MAX):
        raise _config("block-size", f"{what}: size {block.size:#x} is larger than 2 MiB")
    _inside_output(tcte, block.base, block.size, what)
    return block


def _inside_output(tcte: Entry, base: int, size: int, what: str) -> None:
    bits = min(ADDRESS_BITS, SIZE_BITS[tcte["GPAS"]])
    if base + size > 1 << bits:
        raise _config("beyond-gpas", f"{what} at {base:#x} is not below 2^{bits}")


def check_node(trace: Trace, hit: Hit, request: Request) -> None:
    """6.3: E_bit, then access type, then token."""
    node = hit.node
    trace.note(
        "rights of the node",
        "6.3",
        f"E_BIT {node['E_BIT']}, PERMISSION {node['PERMISSION']:#x}, "
        f"TOKEN_CHK {node['TOKEN_CHK']}, covers [{hit.first:#x}, {hit.last:#x}]",
    )
    found = {"first": hit.first, "last": hit.last}
    if node["E_BIT"] and not request.e_bit:
        raise Refusal(
            "EVT_EBIT_DENY",
            "node-e-bit",
            "6.3",
            "the grant admits only local initiators (E_bit 1)",
            detail=found,
        )
    if not node["PERMISSION"] >> _PERMISSION_BIT[request.access] & 1:
        raise _no_permission(
            "access-type",
            "6.3",
            f"PERMISSION {node['PERMISSION']:#x} does not allow {request.access.name.lower()}",
            permission=node["PERMISSION"],
            **found,
        )
    if node["TOKEN_CHK"]:
        tokens = (node["TOKEN_VAL_0"], node["TOKEN_VAL_1"])
        if request.token is None:
            raise _no_permission(
                "token-missing",
                "6.3",
                "the grant needs a token, the request has none",
                tokens=tokens,
                **found,
            )
        if request.token not in tokens:
            raise _no_permission(
                "token", "6.3", f"token {request.token:#x} is none of the grant's", tokens=tokens, **found
            )


def _size(code: int) -> int:
    return 4096 << code


def _no_permission(reason: str, section: str, text: str, **detail: object) -> Refusal:
    return Refusal("EVT_P_PERMISSION", reason, section, text, detail=detail)


def _config(reason: str, text: str) -> Refusal:
    return Refusal("EVT_P_CFG_ERROR", reason, "6.2", text)
