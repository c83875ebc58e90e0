# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``ummulab`` command.

Sub-commands live in ``ummulab.<area>.commands``; they are imported only when
called, so that ``ummulab run`` does not pay for numpy and ``--help`` is quick.
"""

from __future__ import annotations

import errno
import importlib
import signal
import sys
from typing import NoReturn

import click

from ummulab import __version__
from ummulab.errors import UserError

#: name -> (module:attribute, one-line help for the list)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("ummulab.vm.commands:run", "Boot a VM and give its prompt."),
    "exec": ("ummulab.vm.commands:exec_command", "Run one command in a fresh VM; its exit status is yours."),
    "console": ("ummulab.vm.commands:console", "Attach to the console of a running VM."),
    "bench": ("ummulab.vm.commands:bench", "Run a benchmark."),
    "decode": ("ummulab.decode.commands:decode", "Print tables and queues of a running VM."),
    "explain": ("ummulab.decode.commands:explain", "Say why an access is allowed or refused."),
    "fuzz": ("ummulab.fuzz.commands:fuzz", "Fuzz the devices for a bounded time."),
    "build": ("ummulab.build.commands:build", "Build QEMU, kernel, guest programs and image."),
    "images": ("ummulab.build.commands:images", "Make, list, verify and clean built artifacts."),
    "replay": ("ummulab.fuzz.commands:replay", "Ask device and model again what a saved file asks."),
    "packages": ("ummulab.packages.commands:packages", "Make libummu as Debian packages and RPMs."),
    "generate": ("ummulab.build.commands:generate", "Write the generated headers and reference pages again."),
}


#: A full or read-only disk can show up at any write.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

#: What click raises to show the help of a group that was called without a command (8.2 and later).
_HELP: type | tuple[()] = getattr(click.exceptions, "NoArgsIsHelpError", ())


class LazyGroup(click.Group):
    """A click group that imports a sub-command when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of ``COMMANDS``."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one sub-command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command list, from the table: listing must not import everything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ummulab")
def app() -> None:
    """A laboratory for the UMMU: build, boot, drive, decode and explain."""


def fail(error: UserError) -> int:
    """Print a user error in the one form all commands share; returns the exit status."""
    click.echo(f"ummulab: error: {error.message}", err=True)
    if error.hint:
        click.echo(f"ummulab: hint: {error.hint}", err=True)
    return error.exit_code


def main() -> NoReturn:
    """Entry point: user errors become one line, Ctrl-C and SIGTERM end quietly."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = app.main(prog_name="ummulab", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except UserError as error:
        sys.exit(fail(error))
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        # click's own way shows the usage in several lines; a wrong word deserves one.
        message = error.format_message()
        click.echo(message if isinstance(error, _HELP) else f"ummulab: error: {message}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("ummulab: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error of ours.
        sys.stdout = None
        sys.exit(141)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise  # a fault of ours: the traceback is what helps
        sys.exit(fail(disk_error(error)))


def disk_error(error: OSError) -> UserError:
    """What the machine's disk said, as one line."""
    where = f": {error.filename}" if error.filename else ""
    return UserError(
        f"{error.strerror}{where}",
        hint="free some space, or set UMMULAB_CACHE (cache) or TMPDIR (logs) to another folder",
    )


def _terminate(signum: int, _frame: object) -> NoReturn:
    # An exception, so that context managers stop QEMU and remove their files.
    raise SystemExit(128 + signum)
