# SPDX-License-Identifier: GPL-2.0-or-later
"""KVM is used only where it really works; the answer says why not."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from ummulab.build import Images
from ummulab.errors import UsageError
from ummulab.vm import accel

#: Stand-ins for QEMU: what it does when it is started with -accel kvm.
WORKS = "echo -n x; exec sleep 600"
HANGS = "exec sleep 600"
FAILS = "echo 'qemu: Could not access KVM kernel module' >&2; exit 1"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host of architecture x86_64 whose CPU and /dev/kvm look right."""
    monkeypatch.setenv("UMMULAB_CACHE", str(tmp_path))
    (tmp_path / "kvm").touch()
    (tmp_path / "cpuinfo").write_text("flags : fpu vmx sse2\n")
    (tmp_path / "boot_id").write_text("first\n")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(accel, "KVM_DEVICE", tmp_path / "kvm")
    monkeypatch.setattr(accel, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(accel, "BOOT_ID", tmp_path / "boot_id")


def images(tmp_path: Path, does: str, *, qemu: str = "1") -> Images:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/sh\necho started >> {tmp_path}/starts\n{does}\n")
    program.chmod(0o755)
    return Images("x86_64", program, tmp_path, tmp_path, tmp_path, {"qemu": qemu, "kernel": "2"})


def starts(tmp_path: Path) -> int:
    path = tmp_path / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_kvm_that_works_is_used(tmp_path: Path) -> None:
    assert accel.choose_accel(images(tmp_path, WORKS), "x86_64").name == "kvm"


@pytest.mark.parametrize(
    ("does", "reason"),
    [(HANGS, "no sign of life within 0.3 s"), (FAILS, "Could not access KVM kernel module")],
)
def test_kvm_that_does_not_work_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, reason: str
) -> None:
    monkeypatch.setattr(accel, "PROBE_SECONDS", 0.3)
    chosen = accel.choose_accel(images(tmp_path, does), "x86_64")
    assert chosen.name == "tcg" and reason in chosen.reason
    with pytest.raises(UsageError, match=reason):
        accel.choose_accel(images(tmp_path, does), "x86_64", "kvm")
    assert starts(tmp_path) == 1, "the answer holds until the machine is started again"


def test_trial_is_repeated_for_another_boot_or_qemu(tmp_path: Path) -> None:
    for _ in range(2):
        accel.choose_accel(images(tmp_path, FAILS), "x86_64")
    assert starts(tmp_path) == 1
    assert accel.choose_accel(images(tmp_path, WORKS, qemu="new"), "x86_64").name == "kvm"
    (tmp_path / "boot_id").write_text("second\n")
    assert accel.choose_accel(images(tmp_path, FAILS, qemu="new"), "x86_64").name == "tcg"
    assert starts(tmp_path) == 3


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', '{"obstacle": 7}'])
def test_damaged_record_of_the_trial_is_no_answer(tmp_path: Path, damage: str) -> None:
    (tmp_path / "kvm-probe.json").write_text(damage)
    assert accel.choose_accel(images(tmp_path, WORKS), "x86_64").name == "kvm"


def hide_flag(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu novmx sse2\n")


def hide_device(tmp_path: Path) -> None:
    (tmp_path / "kvm").unlink()


@pytest.mark.parametrize(
    ("arch", "change", "reason"),
    [
        ("aarch64", lambda _: None, "the guest is aarch64, the host x86_64"),
        ("x86_64", hide_flag, "the CPU shows no virtualization"),
        ("x86_64", hide_device, "there is no"),
    ],
)
def test_obstacle_is_named_without_a_trial(tmp_path: Path, arch: str, change: object, reason: str) -> None:
    assert callable(change)
    change(tmp_path)
    chosen = accel.choose_accel(images(tmp_path, WORKS), arch)
    assert chosen.name == "tcg" and reason in chosen.reason
    assert starts(tmp_path) == 0


def test_device_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission" in accel.choose_accel(images(tmp_path, WORKS), "x86_64").reason


def test_tcg_when_asked_for_and_nothing_unknown(tmp_path: Path) -> None:
    assert accel.choose_accel(images(tmp_path, WORKS), "x86_64", "tcg").name == "tcg"
    with pytest.raises(UsageError, match="unknown accelerator 'hvf'"):
        accel.choose_accel(images(tmp_path, WORKS), "x86_64", "hvf")
    assert starts(tmp_path) == 0
