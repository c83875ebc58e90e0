# SPDX-License-Identifier: GPL-2.0-or-later
"""Write an initramfs archive (cpio "newc") without root: device nodes are only headers.

The same tree gives the same bytes: entries are sorted, owner is root, times are 0.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import PurePosixPath

BLOCK = 512


@dataclass(frozen=True)
class Node:
    """One thing in the archive."""

    mode: int  #: type and permission bits
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


@dataclass
class Tree:
    """A file tree in memory, by absolute path without the leading slash."""

    nodes: dict[str, Node] = field(default_factory=dict)

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Add a folder and its parents."""
        self._parents(path)
        self.nodes[path] = Node(stat.S_IFDIR | mode)

    def file(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Add a regular file."""
        self._parents(path)
        self.nodes[path] = Node(stat.S_IFREG | (0o755 if executable else 0o644), data)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._parents(path)
        self.nodes[path] = Node(stat.S_IFLNK | 0o777, target.encode())

    def char_device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device."""
        self._parents(path)
        self.nodes[path] = Node(stat.S_IFCHR | mode, device=(major, minor))

    def _parents(self, path: str) -> None:
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path!r} is not a path below the root")
        for parent in list(PurePosixPath(path).parents)[:-1]:
            known = self.nodes.setdefault(str(parent), Node(stat.S_IFDIR | 0o755))
            if not stat.S_ISDIR(known.mode):
                raise ValueError(f"{path!r} lies below {str(parent)!r}, which is not a folder")

    def archive(self) -> bytes:
        """The whole tree as cpio."""
        out = bytearray()
        for number, name in enumerate(sorted(self.nodes), start=1):
            out += _entry(name, self.nodes[name], number)
        out += _entry("TRAILER!!!", Node(0), 0)
        return bytes(out + bytes(-len(out) % BLOCK))


def _entry(name: str, node: Node, number: int) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(node.mode) else 1
    fields = (
        number,
        node.mode,
        0,  # user
        0,  # group
        links,
        0,  # time
        len(node.data),
        0,  # device of the file system: major, minor
        0,
        *node.device,
        len(encoded),
        0,  # checksum, unused in this format
    )
    header = b"070701" + b"".join(b"%08X" % value for value in fields)
    head = header + encoded
    return head + bytes(-len(head) % 4) + node.data + bytes(-len(node.data) % 4)
