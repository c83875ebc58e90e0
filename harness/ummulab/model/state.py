# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes into a resolution: the request and the state of the UMMU's registers."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from ummulab.spec import SpecError, load

#: Bits of an output or input size code (GPAS, OA_SIZE, S2_PAS).
SIZE_BITS = {0: 32, 1: 36, 2: 40, 3: 42, 4: 44, 5: 48}


class Access(enum.Enum):
    """Access type of a request (section 5)."""

    READ = "r"
    WRITE = "w"
    ATOMIC = "a"

    @property
    def writes(self) -> bool:
        """True if memory is changed."""
        return self is not Access.READ

    @property
    def reads(self) -> bool:
        """True if memory is read."""
        return self is not Access.WRITE


@dataclass(frozen=True)
class Request:
    """One transaction as it reaches the UMMU: ``length`` bytes from UBA ``uba``.

    ``token`` None means that the request carries none (header field TV_EN = 0).  ``e_bit`` 1 marks a trusted
    local initiator (section 5.6).
    """

    eid: int
    tid: int
    uba: int
    length: int = 1
    access: Access = Access.READ
    token: int | None = None
    e_bit: int = 1
    privileged: bool = True
    instruction: bool = False
    no_stall: bool = False

    def __post_init__(self) -> None:
        limits = (
            ("eid", self.eid, 128),
            ("tid", self.tid, 20),
            ("uba", self.uba, 64),
            ("e_bit", self.e_bit, 1),
            ("token", self.token or 0, 32),
        )
        for name, value, bits in limits:
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name} {value:#x} does not fit {bits} bits")
        if self.length < 0 or self.uba + self.length > 1 << 64:
            raise ValueError(f"length {self.length:#x} does not fit behind {self.uba:#x}")


@functools.cache
def _resets() -> dict[str, int]:
    return {name: r.reset or 0 for name, r in load().registers.items()}


@functools.cache
def _field(register: str, name: str) -> tuple[int, int]:
    for f in load().reg(register).fields:
        if f.name == name:
            return f.lsb, (1 << f.width) - 1
    raise SpecError(f"{register} has no field {name}")


@dataclass(frozen=True)
class State:
    """Register values (missing ones at their reset value) and the DstEID bindings (EID to tag, 13)."""

    registers: Mapping[str, int] = field(default_factory=dict)
    kv: Mapping[int, int] = field(default_factory=dict)

    def reg(self, name: str) -> int:
        """Value of a register."""
        return self.registers.get(name, _resets()[name])

    def get(self, register: str, name: str) -> int:
        """Value of one field of a register."""
        lsb, mask = _field(register, name)
        return self.reg(register) >> lsb & mask

    @property
    def output_bits(self) -> int:
        """CAP2.OA_SIZE in bits; 48 for an unknown code (section 3.1)."""
        return SIZE_BITS.get(self.get("CAP2", "OA_SIZE"), 48)

    @property
    def httu(self) -> int:
        """CAP3.HTTU_SUPPORT: 0 none, 1 access flag, 2 access flag and dirty state."""
        return self.get("CAP3", "HTTU_SUPPORT")

    def granule_supported(self, code: int) -> bool:
        """True if CAP2 has the translation granule of a TGS/TG code; code 3 is reserved."""
        name = {0: "GRAN4K_T", 1: "GRAN64K_T", 2: "GRAN16K_T"}.get(code)
        return name is not None and bool(self.get("CAP2", name))
