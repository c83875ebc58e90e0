# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab packages``."""

from __future__ import annotations

from pathlib import Path

import click

from ummulab import packages as packing
from ummulab.build.paths import REPO
from ummulab.build.progress import default_reporter


@click.command()
@click.option("--arch", type=click.Choice([*packing.NAMES, "all"]), default="all", show_default=True)
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=REPO / "build/packages"
)
def packages(arch: str, output: Path) -> None:
    """Make libummu and libummu-devel as Debian packages and RPMs."""
    for one in packing.NAMES if arch == "all" else (arch,):
        for path in packing.make(one, output.resolve(), default_reporter()):
            click.echo(path)
