# SPDX-License-Identifier: GPL-2.0-or-later
"""The initramfs: format, reproducibility, places of files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from ummulab.build import image
from ummulab.build.cpio import Tree
from ummulab.errors import UserError

APPLETS = ["[", "[[", "cat", "init", "insmod", "mount", "poweroff", "setsid", "sh", "true"]
BUSYBOX = b"\x7fELF junk\0" + b"\0".join(name.encode() for name in APPLETS) + b"\0\0rest [ of it"


def parse_newc(data: bytes) -> dict[str, tuple[int, bytes, list[int]]]:
    """Read an archive by the format's description: name -> (mode, content, all header fields)."""
    found: dict[str, tuple[int, bytes, list[int]]] = {}
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = data[at + 110 : at + 110 + fields[11] - 1].decode()
        assert data[at + 110 + fields[11] - 1] == 0
        at = (at + 110 + fields[11] + 3) & ~3
        content = data[at : at + fields[6]]
        at = (at + fields[6] + 3) & ~3
        if name == "TRAILER!!!":
            assert data[at:].strip(b"\0") == b"" and len(data) % 512 == 0
            return found
        found[name] = (fields[1], content, fields)


def sample(order: int) -> Tree:
    tree = Tree()
    steps = [
        lambda: tree.file("usr/bin/sh", b"program", executable=True),
        lambda: tree.file("etc/x", b"12345"),
        lambda: tree.link("bin", "usr/bin"),
        lambda: tree.char_device("dev/console", 5, 1),
        lambda: tree.directory("tmp", 0o1777),
    ]
    for step in steps[::order]:
        step()
    return tree


def test_archive_has_what_was_put_in() -> None:
    found = parse_newc(sample(1).archive())
    assert list(found) == sorted(found)
    assert found["usr/bin/sh"][:2] == (stat.S_IFREG | 0o755, b"program")
    assert found["etc/x"][:2] == (stat.S_IFREG | 0o644, b"12345")
    assert found["bin"][:2] == (stat.S_IFLNK | 0o777, b"usr/bin")
    assert found["tmp"][0] == stat.S_IFDIR | 0o1777
    assert found["dev/console"][0] == stat.S_IFCHR | 0o600
    assert found["dev/console"][2][9:11] == [5, 1]
    assert {"usr", "usr/bin", "etc", "dev"} <= set(found)
    for _, _, fields in found.values():
        assert fields[2:4] == [0, 0] and fields[5] == 0, "owner is root, time is 0"
    assert len({fields[0] for _, _, fields in found.values()}) == len(found), "inode numbers are unique"


def test_archive_does_not_depend_on_order() -> None:
    assert sample(1).archive() == sample(-1).archive()


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x"])
def test_paths_outside_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a path below the root"):
        Tree().file(path, b"")


def test_file_below_a_link_is_refused() -> None:
    tree = sample(1)
    with pytest.raises(ValueError, match="not a folder"):
        tree.file("bin/x", b"")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("bin/x", "usr/bin/x"),
        ("sbin/x", "usr/bin/x"),
        ("usr/sbin/x", "usr/bin/x"),
        ("lib/modules/a.ko", "usr/lib/modules/a.ko"),
        ("lib64/ld.so", "usr/lib/ld.so"),
        ("usr/lib/x", "usr/lib/x"),
        ("etc/x", "etc/x"),
    ],
)
def test_merged_usr(name: str, where: str) -> None:
    assert image.place(name) == where


def test_applets_come_from_the_program() -> None:
    assert image.busybox_applets(BUSYBOX) == APPLETS


def test_shell_builtins_are_not_taken_for_the_applets() -> None:
    """Debian's 1.37 has the shell's table first: each name after a digit, "[" and "[[" among them."""
    builtins = b"\0".join([b"3:", b"2[", b"2[[", b"6alias", b"2bg", b"3break", b"2cd", b"3chdir"]) + b"\0"
    assert image.busybox_applets(builtins + BUSYBOX) == APPLETS


@pytest.mark.parametrize(
    ("program", "says"), [(b"no table", "no applet table"), (BUSYBOX.replace(b"mount", b"mountx"), "mount")]
)
def test_unusable_busybox_is_refused(program: bytes, says: str) -> None:
    with pytest.raises(UserError, match=says):
        image.busybox_applets(program)


def test_guest_tree_goes_where_the_guest_looks(tmp_path: Path) -> None:
    for name in (
        "lib/modules/ummu.ko",
        "usr/lib/libx.so.1.0",
        "usr/bin/tool",
        "usr/include/x.h",
        "usr/lib/x.a",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "usr/bin/tool").chmod(0o755)
    (tmp_path / "usr/lib/libx.so.1").symlink_to("libx.so.1.0")
    (tmp_path / "manifest.json").write_text("{}")
    tree = Tree()
    image._add_guest(tree, tmp_path)
    files = {name for name, node in tree.nodes.items() if not stat.S_ISDIR(node.mode)}
    assert files == {
        "usr/lib/ummulab/modules/ummu.ko",
        "usr/lib/libx.so.1.0",
        "usr/lib/libx.so.1",
        "usr/bin/tool",
    }
    assert tree.nodes["usr/bin/tool"].mode & 0o111


def test_broken_recipe_is_one_line() -> None:
    with pytest.raises(UserError, match="image.toml: KeyError"):
        image.parse_recipe(b"[[package]]\nname = 'x'\n", None)  # type: ignore[arg-type]
