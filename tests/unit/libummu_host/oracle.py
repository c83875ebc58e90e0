# SPDX-License-Identifier: GPL-2.0-or-later
"""What libummu must answer (libummu-api.md sections 4.3, 4.4 and 5), and what its tables must then hold."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from libummu_host.host import EINVAL, ENOMEM, ENTRY, TABLE, Host

LIMIT = 1 << 48


@dataclass
class Range:
    """An open range."""

    size: int
    perm: int
    e_bit: int
    tokens: list[int]


@dataclass
class Oracle:
    """One TID."""

    mode: int = TABLE
    ranges: dict[int, Range] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)

    def grant(self, addr: int, size: int, perm: int, token: int | None, e_bit: int) -> int:
        """Result of ummu_grant."""
        if not size or addr >= LIMIT or addr + size > LIMIT:
            return EINVAL
        if (self.mode == TABLE and addr % 4096) or perm not in (1, 2, 3, 5, 6, 7) or e_bit not in (0, 1):
            return EINVAL
        same = self.ranges.get(addr)
        if same and same.size == size:
            fits = same.perm == perm and same.e_bit == e_bit and len(same.tokens) == 1 and token is not None
            if fits:
                assert token is not None
                same.tokens.append(token)
            return 0 if fits else EINVAL
        if self._meets(addr, size) or (self.mode == ENTRY and self.ranges):
            return EINVAL
        self.ranges[addr] = Range(size, perm, e_bit, [] if token is None else [token])
        bisect.insort(self.starts, addr)
        return 0

    def ungrant(self, addr: int, size: int) -> int:
        """Result of ummu_ungrant."""
        if not size:
            return ENOMEM
        found = self._exact(addr, size)
        if found:
            self._close(addr)
        return 0 if found else EINVAL

    def by_token(self, addr: int, size: int, token: int) -> int:
        """Result of ummu_ungrant_by_token."""
        if not size:
            return ENOMEM
        found = self._exact(addr, size)
        if not found or token not in found.tokens:
            return EINVAL
        found.tokens.remove(token)
        if not found.tokens:
            self._close(addr)
        return 0

    def _exact(self, addr: int, size: int) -> Range | None:
        found = self.ranges.get(addr)
        return found if found and found.size == size else None

    def _close(self, addr: int) -> None:
        del self.ranges[addr]
        self.starts.remove(addr)

    def _meets(self, addr: int, size: int) -> bool:
        at = bisect.bisect_right(self.starts, addr + size - 1) - 1
        return at >= 0 and self.starts[at] + self.ranges[self.starts[at]].size > addr

    def check(self, host: Host, tid: int) -> None:
        """Compare with the table in memory: every byte with its rights, and nothing else."""
        left = {start: r.size for start, r in self.ranges.items()}
        end = -1
        for piece in host.dump(tid, self.mode).ranges():
            entry = piece.entry
            if not entry["PERMISSION"]:
                continue  # vacated: its children live on
            assert piece.first > end, f"pieces overlap at {piece.first:#x}"
            end = piece.last
            at = bisect.bisect_right(self.starts, piece.first) - 1
            assert at >= 0, f"{piece.first:#x} is open and was never granted"
            start = self.starts[at]
            want = self.ranges[start]
            assert piece.last < start + want.size, (
                f"{piece.first:#x}..{piece.last:#x} reaches beyond its grant"
            )
            tokens = [entry["TOKEN_VAL_0"], entry["TOKEN_VAL_1"]] if entry["TOKEN_CHK"] else []
            assert (entry["PERMISSION"], entry["E_BIT"]) == (want.perm, want.e_bit)
            assert sorted(set(tokens)) == sorted(set(want.tokens)), f"tokens at {piece.first:#x}"
            left[start] -= piece.last - piece.first + 1
        assert {start: rest for start, rest in left.items() if rest} == {}, "granted bytes are missing"
