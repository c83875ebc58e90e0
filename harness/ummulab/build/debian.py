# SPDX-License-Identifier: GPL-2.0-or-later
"""Fetch Debian 13 packages and sources with an apt configuration of our own.

The host's sources and lists stay untouched, no root is needed, and apt itself checks
signatures and hashes.  What was fetched stays in the cache and is used from there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ummulab.build import host, process
from ummulab.build.arch import ARCHES
from ummulab.build.inputs import sha256
from ummulab.build.locks import locked
from ummulab.build.paths import cache_dir, writable
from ummulab.build.progress import Reporter
from ummulab.build.store import hash_file
from ummulab.errors import UserError

SUITE = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
RECORD = "download.json"
LISTS_GIB = 0.1
_URI = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+)")


@dataclass(frozen=True)
class Download:
    """A fetched package: its files, checked against the hashes recorded when apt had verified them."""

    name: str
    version: str
    path: Path
    files: dict[str, str]

    def file(self, suffix: str) -> Path:
        """The one file whose name ends so."""
        return next(self.path / name for name in self.files if name.endswith(suffix))

    @property
    def identity(self) -> str:
        """What goes into keys."""
        return f"{self.version} {sha256(json.dumps(self.files, sort_keys=True).encode())}"


def _deb822_uris(text: str) -> Iterator[str]:
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = dict(re.findall(r"^([A-Za-z-]+):\s*(.*)$", "\n".join(lines), re.MULTILINE))
        if _is_main(fields.get("Suites", "").split(), fields.get("Components", "").split()):
            yield from fields.get("URIs", "").split()


def _list_uris(text: str) -> Iterator[str]:
    for line in text.splitlines():
        match = re.match(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)$", line.strip())
        if match and _is_main([match[2]], match[3].split()):
            yield match[1]


def _is_main(suites: list[str], components: list[str]) -> bool:
    return "main" in components and any(suite in ("bookworm", "trixie", "stable") for suite in suites)


@cache
def mirror(etc: Path = Path("/etc/apt")) -> str:
    """The Debian mirror to use: the user's choice, else the one this host is set up with."""
    chosen = os.environ.get("UMMULAB_DEBIAN_MIRROR")
    if chosen:
        return chosen.rstrip("/")
    found: list[str] = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if path.suffix == ".sources":
            found += _deb822_uris(path.read_text(errors="replace"))
        elif path.suffix == ".list" and path.is_file():
            found += _list_uris(path.read_text(errors="replace"))
    if not found:
        raise UserError(
            "no Debian mirror in the host's apt sources",
            hint="name one: UMMULAB_DEBIAN_MIRROR=URL",
        )
    return found[0].rstrip("/")


class Apt:
    """One private apt configuration."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._mirror = mirror()
        self.root = writable(cache_dir() / "apt" / sha256(self._mirror.encode())[:12])
        self._write()

    def _write(self) -> None:
        for name in ("lists/partial", "cache/archives/partial", "state"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()
        source = f"[signed-by={KEYRING}] {self._mirror} {SUITE} main\n"
        (self.root / "sources.list").write_text(f"deb {source}deb-src {source}")
        native = process.output(["dpkg", "--print-architecture"], "asking dpkg").strip()
        others = [arch.debian for arch in ARCHES.values() if arch.debian != native]
        architectures = "".join(f'"{name}";' for name in [native, *others])
        settings = [
            f'Dir::Etc::sourcelist "{self.root}/sources.list"',
            'Dir::Etc::sourceparts "-"',
            f'Dir::State "{self.root}/state"',
            f'Dir::State::status "{self.root}/status"',
            f'Dir::State::Lists "{self.root}/lists"',
            f'Dir::Cache "{self.root}/cache"',
            "#clear APT::Architectures",
            f"APT::Architectures {{{architectures}}}",
            # Hooks of the host's configuration are about the host's own folders.
            "#clear APT::Update::Post-Invoke",
            "#clear APT::Update::Post-Invoke-Success",
            "#clear DPkg::Post-Invoke",
            'Acquire::Languages "none"',
            'Acquire::Retries "2"',
            'Acquire::http::Timeout "30"',
            'APT::Sandbox::User "root"',
        ]
        (self.root / "apt.conf").write_text("".join(f"{line};\n" for line in settings))

    @property
    def env(self) -> dict[str, str]:
        """Environment that makes apt use this configuration."""
        return {"APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def update(self) -> None:
        """Fetch the package lists, once per process."""
        log = process.log_path("apt-update")
        with self._reporter.step(f"fetching package lists of Debian {SUITE}", 20) as step:
            try:
                process.run(
                    ["apt-get", "-o", "APT::Update::Error-Mode=any", "update"],
                    log,
                    "fetching package lists",
                    step=step,
                    env=self.env,
                    append=False,
                )
            except UserError as error:
                raise host.network_hint(error, log) from None

    def uris(self, arguments: list[str]) -> dict[str, int]:
        """What apt would fetch: file names and sizes."""
        text = process.output(
            ["apt-get", *arguments[:-1], "--print-uris", arguments[-1]], "asking apt", env=self.env
        )
        matches = filter(None, (_URI.match(line) for line in text.splitlines()))
        return {match["file"]: int(match["size"]) for match in matches}

    def version(self, name: str, *, source: bool) -> str:
        """Version of a package or source package in the suite."""
        if source:
            text = process.output(["apt-cache", "showsrc", "--only-source", name], "asking apt", env=self.env)
        else:
            text = process.output(
                ["apt-cache", "show", "--no-all-versions", name], "asking apt", env=self.env
            )
        match = re.search(r"^Version: (\S+)$", text, re.MULTILINE)
        if not match:
            raise UserError(f"Debian {SUITE} has no package {name}")
        return match[1]


class Fetcher:
    """Gets packages into the cache; asks the network only for what is not there."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._apt: Apt | None = None

    def get(self, name: str, *, source: bool = False) -> Download:
        """A package (``name`` or ``name:arch``) or source package."""
        folder = cache_dir() / "downloads" / f"{'src' if source else 'deb'}-{name.replace(':', '_')}"
        found = self._read(name, folder)
        if found:
            return found
        # One lock for all downloads: they share apt's lists.
        with locked("downloads", self._reporter):
            return self._read(name, folder) or self._fetch(name, folder, source)

    def _read(self, name: str, folder: Path) -> Download | None:
        try:
            record = json.loads((folder / RECORD).read_text())
            files = {str(file): str(facts["sha256"]) for file, facts in record["files"].items()}
            stamps = {file: (facts["size"], facts["mtime_ns"]) for file, facts in record["files"].items()}
            version = str(record["version"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._reporter.note(f"cache: the record of {name} is damaged; fetching it again")
            return None
        for file, digest in files.items():
            path = folder / file
            stat = path.stat() if path.is_file() else None
            if stat and (stat.st_size, stat.st_mtime_ns) == tuple(stamps[file]):
                continue
            if not stat or hash_file(path) != digest:
                self._reporter.note(f"cache: {file} is damaged; fetching it again")
                return None
        return Download(name, version, folder, files)

    def _fetch(self, name: str, folder: Path, source: bool) -> Download:
        host.require_debian()
        if not self._apt:
            host.require_disk(LISTS_GIB, "Debian's package lists")
            self._apt = Apt(self._reporter)
            self._apt.update()
        arguments = ["source", "--download-only", name] if source else ["download", name]
        sizes = self._apt.uris(arguments)
        host.require_disk(sum(sizes.values()) * 1.05 / host.GIB, f"fetching {name}")
        version = self._apt.version(name, source=source)
        temporary = folder.with_name(f".new-{folder.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            self._download(self._apt, arguments, temporary, name, sizes)
            files = self._record(temporary, version)
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return Download(name, version, folder, files)

    def _download(
        self, apt: Apt, arguments: list[str], folder: Path, name: str, sizes: dict[str, int]
    ) -> None:
        log = process.log_path("apt-download")
        total = sum(sizes.values())
        with self._reporter.step(f"fetching {name} ({total / 1e6:.1f} MB)", max(total / 5e6, 5)) as step:
            # apt runs quietly; the growing files tell how far it is.
            with log.open("wb") as out:
                child = process.start(["apt-get", *arguments], out, folder, apt.env)
            try:
                grown, last = -1, time.monotonic()
                while child.poll() is None:
                    size = sum(path.stat().st_size for path in folder.glob("*") if path.exists())
                    if size != grown:
                        grown, last = size, time.monotonic()
                    elif time.monotonic() - last > 300:
                        raise UserError(f"fetching {name}: nothing arrived for 300 s", hint=f"log: {log}")
                    step.update(min(size, total), max(total, 1))
                    time.sleep(0.1)
            except BaseException:
                process.stop(child)
                raise
        if child.returncode:
            error = process.failure(f"fetching {name}", log, 0, child.returncode)
            raise host.network_hint(error, log)

    def _record(self, folder: Path, version: str) -> dict[str, str]:
        facts = {}
        for path in sorted(folder.iterdir()):
            stat = path.stat()
            facts[path.name] = {
                "sha256": hash_file(path),
                "size": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
            }
        (folder / RECORD).write_text(json.dumps({"version": version, "files": facts}, indent=1) + "\n")
        return {file: str(values["sha256"]) for file, values in facts.items()}


def forget() -> None:
    """Forget what was fetched, so that the next build looks for newer versions."""
    for folder in (cache_dir() / "downloads").glob("*"):
        shutil.rmtree(folder, ignore_errors=True)
