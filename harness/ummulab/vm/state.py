# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved VMs: guest RAM and device state in a folder, checked before use.

A folder holds ``state`` (QEMU's migration stream), ``meta.json`` and, when RAM was not put
into the stream, ``ram`` (sparse).  RAM beside the stream is what makes a clone cheap: QEMU
maps it copy-on-write and reads only the pages it touches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ummulab.vm.config import VmConfig
from ummulab.vm.errors import StateError

FORMAT = 1
META = "meta.json"
_PIECE = 1 << 20
_KEY_FIELDS = ("arch", "memory_mib", "cpus", "cpu_model", "devices", "append", "icount", "accel")


@dataclass(frozen=True)
class SavedState:
    """A saved VM that passed its checks."""

    path: Path
    config: VmConfig
    ram_in_stream: bool
    extra: Mapping[str, Any]

    @property
    def stream(self) -> Path:
        """QEMU's migration stream."""
        return self.path / "state"

    @property
    def ram(self) -> Path:
        """Guest RAM, when it is not in the stream."""
        return self.path / "ram"


def config_key(config: VmConfig) -> dict[str, Any]:
    """The part of a config that a saved VM depends on, ready for JSON."""
    return {name: value for name, value in asdict(config).items() if name in _KEY_FIELDS}


def images_key(hashes: Mapping[str, str]) -> dict[str, str]:
    """The image hashes a saved VM depends on, in fixed order."""
    return {name: hashes[name] for name in sorted(hashes)}


def copy_sparse(source: int, target: int, size: int) -> None:
    """Copy a file's data and keep its holes; the target must be empty."""
    os.ftruncate(target, size)
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(source, offset, os.SEEK_DATA)
        except OSError:  # ENXIO: only a hole is left
            return
        end = os.lseek(source, offset, os.SEEK_HOLE)
        while offset < end:
            data = os.pread(source, min(_PIECE, end - offset), offset)
            if data.strip(b"\0"):  # memory the guest cleared need not take room
                _write_at(target, data, offset)
            offset += len(data)


def _write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view = view[done:]
        offset += done


def hash_sparse(path: Path) -> str:
    """SHA-256 over size and data; a hole counts like zeros, at no cost."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        digest.update(f"size {size}\n".encode())
        for start in _data_pieces(file.fileno(), size):
            data = os.pread(file.fileno(), _PIECE, start)
            if data.strip(b"\0"):
                digest.update(f"at {start}\n".encode())
                digest.update(data)
    return digest.hexdigest()


def _data_pieces(fd: int, size: int) -> list[int]:
    """Offsets, multiples of the piece size, of all pieces that hold data."""
    pieces: list[int] = []
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError:
            break
        offset -= offset % _PIECE
        pieces.append(offset)
        offset += _PIECE
    return pieces


class StateWriter:
    """Makes a state folder beside its final place and renames it when it is complete."""

    def __init__(self, path: Path) -> None:
        self._final = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def commit(
        self, config: VmConfig, hashes: Mapping[str, str], ram_in_stream: bool, extra: Mapping[str, Any]
    ) -> None:
        """Write the description, make everything durable and put it in place."""
        files = {}
        for path in sorted(self.work.iterdir()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(0o444)
            files[path.name] = {"sha256": hash_sparse(path), **_stamp(path)}
        meta = {
            "format": FORMAT,
            "config": config_key(config),
            "images": images_key(hashes),
            "ram_in_stream": ram_in_stream,
            "files": files,
            "extra": dict(extra),
        }
        target = self.work / META
        with target.open("w") as text:
            json.dump(meta, text, indent=1)
            text.flush()
            os.fsync(text.fileno())
        if self._final.exists():
            shutil.rmtree(self._final)
        self.work.rename(self._final)


def _stamp(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def load_state(path: Path, hashes: Mapping[str, str]) -> SavedState:
    """Check a state folder and describe it.  Raises StateError with the reason why it cannot be used."""
    meta = _read_meta(path)
    if meta.get("format") != FORMAT:
        raise StateError(f"saved VM {path}: format {meta.get('format')!r}, this version reads {FORMAT}")
    try:
        key, files = meta["config"], meta["files"]
        config = VmConfig(**{**key, "devices": tuple(key["devices"])})
        ram_in_stream, images, extra = bool(meta["ram_in_stream"]), meta["images"], meta["extra"]
        wanted = {"state"} | (set() if ram_in_stream else {"ram"})
        if set(files) != wanted:
            raise StateError(f"saved VM {path}: lists {sorted(files)} instead of {sorted(wanted)}")
    except (KeyError, TypeError, AttributeError) as err:
        raise StateError(f"saved VM {path}: damaged {META} ({err!r})") from None
    for name, digest in images_key(hashes).items():
        if images.get(name) != digest:
            raise StateError(f"saved VM {path}: made with another {name}; save it again with this one")
    for name, facts in files.items():
        _check_file(path / name, facts)
    return SavedState(path, config, ram_in_stream, extra)


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads((path / META).read_text())
    except FileNotFoundError:
        raise StateError(f"no saved VM at {path}") from None
    except (OSError, ValueError) as err:
        raise StateError(f"saved VM {path}: cannot read {META}: {err}") from None
    if not isinstance(meta, dict):
        raise StateError(f"saved VM {path}: damaged {META}")
    return meta


def _check_file(path: Path, facts: Mapping[str, Any]) -> None:
    try:
        stamp = _stamp(path)
    except OSError as err:
        raise StateError(f"saved VM: {path}: {err.strerror}") from None
    if stamp["size"] != facts.get("size"):
        raise StateError(f"saved VM: {path} has {stamp['size']} bytes instead of {facts.get('size')}")
    # Reading all of RAM again for each clone would cost more than the clone: an untouched file is trusted.
    if stamp["mtime_ns"] != facts.get("mtime_ns") and hash_sparse(path) != facts.get("sha256"):
        raise StateError(f"saved VM: {path} does not match its hash")


def remove_state(path: Path) -> None:
    """Remove a state folder; harmless if there is none."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
