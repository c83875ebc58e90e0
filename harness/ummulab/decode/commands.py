# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab decode`` and ``ummulab explain``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ummulab.decode import explain as why
from ummulab.decode import reports
from ummulab.decode.report import print_reports
from ummulab.decode.source import core_view, vm_view
from ummulab.decode.view import View
from ummulab.errors import UsageError, UserError
from ummulab.memory import MemoryReadError
from ummulab.model import Access, Request
from ummulab.model.verdict import Step

_WATCH_S = 1.0
PIPE_WIDTH = 240


def number(bits: int) -> Callable[[str], int]:
    """A click type: a number in decimal, 0x or 0b notation, at most ``bits`` wide."""

    def convert(value: str) -> int:
        try:
            result = int(str(value), 0)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number") from None
        if not 0 <= result < 1 << bits:
            raise click.BadParameter(f"{value} does not fit {bits} bits")
        return result

    convert.__name__ = "number"
    return convert


def _source(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where to read."""
    options = (
        click.option("--vm", "vm", metavar="NAME", help="A running VM (default: the only one)."),
        click.option("--core", type=click.Path(path_type=Path), help="An ELF core of dump-guest-memory."),
        click.option("--regs", "registers", type=click.Path(path_type=Path),
                     help="Registers that go with --core: JSON of 'ummulab decode regs --json'."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@contextlib.contextmanager
def open_view(vm: str | None, core: Path | None, registers: Path | None) -> Iterator[View]:
    """The view that the source options name."""
    if core is not None and vm is not None:
        raise UsageError("--vm and --core exclude each other")
    if registers is not None and core is None:
        raise UsageError("--regs goes with --core")
    if core is not None:
        yield core_view(core, registers)
        return
    view, close = vm_view(vm)
    try:
        yield view
    finally:
        close()


@click.command()
@click.argument("kind", type=click.Choice(list(reports.KINDS)))
@_source
@click.option("--eid", type=number(128), help="Only the entity this EID is bound to.")
@click.option("--tag", type=number(16), help="Only this entity.")
@click.option("--tid", type=number(20), help="Only this TokenID.")
@click.option("--va", type=number(64), help="Only what this address uses.")
@click.option("--last", type=click.IntRange(0, 1 << 19), default=16, help="Finished ring entries to show.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
@click.option("--raw", is_flag=True, help="Show raw words.")
@click.option("--watch", is_flag=True, help="Print again every second until Ctrl-C.")
@click.pass_context
def decode(ctx: click.Context, kind: str, vm: str | None, core: Path | None, registers: Path | None,
           eid: int | None, tag: int | None, tid: int | None, va: int | None, last: int, as_json: bool,
           raw: bool, watch: bool) -> None:  # fmt: skip
    """Print what the hardware sees: registers, entities, contexts, tables, queues, events."""
    if eid is not None and tag is not None:
        raise UsageError("--eid and --tag exclude each other")
    if core is not None and kind != "regs" and registers is None:
        raise UsageError(
            "a dump has no registers", hint="add --regs FILE, saved with 'ummulab decode regs --json'"
        )
    wanted = reports.Filter(eid, tag, tid, va, last)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:  # a pipe has no width: nothing may be cut off
        console.width = PIPE_WIDTH
    while True:
        with open_view(vm, core, registers) as view:
            try:
                found = reports.KINDS[kind](view, wanted)
            except MemoryReadError as err:
                raise reports.bus_error(err) from err
            if watch and console.is_terminal:
                console.clear()
            damaged = print_reports(found, as_json=as_json, console=console, raw=raw)
        if not watch:
            break
        time.sleep(_WATCH_S)
    if damaged:
        ctx.exit(1)


@click.command()
@_source
@click.option("--eid", type=number(128), default=0x100, show_default=True, help="DstEID of the request.")
@click.option("--tid", type=number(20), required=True, help="TokenID.")
@click.option("--va", type=number(64), required=True, help="First byte (UBA).")
@click.option("--len", "length", type=number(48), default=1, show_default=True, help="Bytes.")
@click.option("--access", type=click.Choice(["r", "w", "a"]), default="r", show_default=True,
              help="Read, write or atomic.")  # fmt: skip
@click.option("--token", type=number(32), help="TokenValue (default: the request carries none).")
@click.option("--e-bit", type=click.IntRange(0, 1), default=1, show_default=True,
              help="1: trusted local device, 0: from the wire.")  # fmt: skip
@click.option("--user", is_flag=True, help="Unprivileged (default: privileged).")
@click.option("--fetch", is_flag=True, help="An instruction fetch.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def explain(ctx: click.Context, vm: str | None, core: Path | None, registers: Path | None, eid: int, tid: int,
            va: int, length: int, access: str, token: int | None, e_bit: int, user: bool, fetch: bool,
            as_json: bool) -> None:  # fmt: skip
    """Say step by step why an access is allowed or refused.

    Exit status: 0 allowed, 3 refused, 4 the device disagrees.
    """
    if core is not None and registers is None:
        raise UsageError(
            "a dump has no registers", hint="add --regs FILE, saved with 'ummulab decode regs --json'"
        )
    try:
        request = Request(eid, tid, va, length, Access(access), token, e_bit, not user, fetch)
    except ValueError as err:
        raise UsageError(str(err)) from err
    with open_view(vm, core, registers) as view:
        try:
            found = why.explain(view, request)
        except (MemoryReadError, ValueError) as err:
            raise UserError(str(err)) from err
    console = Console(highlight=False, soft_wrap=True)
    if as_json:
        console.file.write(json.dumps(why.as_json(found), indent=1) + "\n")
    else:
        print_explanation(found, console)
    if found.agrees is False:
        ctx.exit(4)
    ctx.exit(0 if found.verdict.refusal is None else 3)


def print_explanation(found: why.Explanation, console: Console) -> None:
    """Steps, verdict, the way out, the device's word."""
    for number, step in enumerate(found.verdict.steps, 1):
        _print_step(number, step, console)
    style = "green" if found.verdict.refusal is None else "red"
    console.print(Text(why.sentence(found.verdict), style=style))
    if found.change:
        console.print(Text(f"to allow it: {found.change}"))
    for text in found.nearest:
        console.print(Text(f"  nearest grant {text}"))
    if found.agrees is None:
        console.print("device: not asked (no running device)")
    elif found.agrees:
        console.print("device: agrees")
    else:
        console.print(Text(f"device: DISAGREES: {found.difference}", style="bold red"))


def _print_step(number: int, step: Step, console: Console) -> None:
    console.print(Text(f"{number:2}. [{step.section}] {step.what}: {step.note}"))
    if step.entry is not None:
        fields = " ".join(f"{k}={v:#x}" for k, v in step.entry.fields.items() if v)
        console.print(Text(f"      at {step.entry.addr:#x}: {' '.join(step.entry.hex_words())}", style="dim"))
        console.print(Text(f"      {fields or 'all fields 0'}", style="dim"))
