# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a :class:`View` comes from: a running VM, a qtest machine, a memory dump with a register file."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ummulab.decode.view import DeviceAnswer, View
from ummulab.errors import UserError
from ummulab.memory import Memory, elf_core
from ummulab.model import Access, Request
from ummulab.spec import load

PERIPHERAL = "/machine/peripheral/"
_ACCESS_WORD = {Access.READ: "read", Access.WRITE: "write", Access.ATOMIC: "atomic"}
_QMP_LIMIT_S = 10.0


class Qmp(Protocol):
    """What is needed of a QMP connection."""

    def command(self, name: str, **arguments: Any) -> Any:
        """Run one command and give its return value."""
        ...


def spec_name(name: str) -> str:
    """The layout files' name of a register that the device calls UMMU_<name>."""
    known = load().registers
    return name if name in known else name.removeprefix("UMMU_")


def request_text(request: Request) -> str:
    """The value of the device's ``translate-request`` property for a request."""
    low = request.eid & ((1 << 64) - 1)
    parts = [
        f"eid={low:#x}", f"eid-hi={request.eid >> 64:#x}", f"tid={request.tid:#x}", f"uba={request.uba:#x}",
        f"len={request.length}", f"access={_ACCESS_WORD[request.access]}", f"e-bit={request.e_bit}",
        f"priv={int(request.privileged)}", f"inst={int(request.instruction)}",
    ]  # fmt: skip
    if request.token is not None:
        parts.append(f"token={request.token:#x}")
    return ",".join(parts)


def parse_answer(result: Mapping[str, Any]) -> DeviceAnswer:
    """The device's ``translate-result`` property."""
    return DeviceAnswer(result["status"], result["event"], result["pa"], result["len"], result["fault-addr"])


def device_view(qmp: Qmp, memory: Memory, device: str = "ummu0") -> View:
    """The UMMU of a live QEMU: registers, bindings, queues and its own translation over QOM."""
    path = PERIPHERAL + device

    def get(name: str) -> Any:
        return qmp.command("qom-get", path=path, property=name)

    def probe(request: Request) -> DeviceAnswer:
        qmp.command("qom-set", path=path, property="translate-request", value=request_text(request))
        return parse_answer(get("translate-result"))

    banks: dict[tuple[str, int], int] = {}
    users: dict[int, Mapping[str, Any]] = {}
    for name, queue in get("queues").items():
        if name.startswith("mcmdq"):
            for field in ("base", "pi", "ci"):
                banks[f"MCMDQ_{field.upper()}", int(name.removeprefix("mcmdq"))] = queue[field]
        else:
            users[int(name.removeprefix("user"))] = queue
    return View(
        memory,
        {spec_name(n): v for n, v in get("registers").items()},
        {int(eid, 16): b["tag"] for eid, b in get("kv").items()},
        banks,
        users,
        probe,
    )


def vm_view(name: str | None) -> tuple[View, Callable[[], None]]:
    """The UMMU of a VM started by ``ummulab run`` (None: the only one running), and how to let go of it."""
    from ummulab.qtest.channel import LineChannel
    from ummulab.qtest.qmp import QmpClient
    from ummulab.vm import registry

    vm = registry.find(name)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(vm.qmp_socket))
    except OSError as err:
        sock.close()
        raise UserError(f"VM {vm.name} does not answer on its QMP socket: {err.strerror}") from err
    channel = LineChannel(
        sock, f"QMP of VM {vm.name}", lambda: "", lambda doing: UserError(f"VM {vm.name} ended while {doing}")
    )
    memory = vm.open_memory()

    def close() -> None:
        channel.close()
        memory.close()

    try:
        qmp = QmpClient(channel)
        qmp.handshake()
        return device_view(qmp, memory), close
    except BaseException:
        close()
        raise


def core_view(core: Path, registers: Path | None) -> View:
    """A dump made by ``dump-guest-memory`` with the registers from ``ummulab decode regs --json``."""
    values: dict[str, int] = {}
    if registers is not None:
        values = read_registers(registers)
    return View(elf_core(core), values)


def read_registers(path: Path) -> dict[str, int]:
    """A register file: a JSON object of names and numbers, or the output of ``decode regs --json``."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise UserError(f"cannot read {path}: {err.strerror}") from err
    except ValueError as err:
        raise UserError(f"{path}: not JSON: {err}") from err
    rows = data.get("rows") if isinstance(data, dict) else None
    pairs = {r.get("name"): r.get("value") for r in rows} if isinstance(rows, list) else data
    if not isinstance(pairs, dict):
        raise UserError(f"{path}: not an object of register names and values")
    out = {}
    for name, value in pairs.items():
        try:
            number = value if isinstance(value, int) else int(value, 0)
        except (TypeError, ValueError):
            raise UserError(f"{path}: {name}: {value!r} is not a number") from None
        if spec_name(name) in load().registers:
            out[spec_name(name)] = number
    return out
