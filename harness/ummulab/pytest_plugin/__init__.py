# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin: VMs as fixtures, and the evidence in the report when a test fails.

Fixtures: ``vm`` (a fresh clone for this test), ``module_vm`` (one for a module, for tests that leave
no traces), ``vm_factory`` (as many as the test wants), ``device`` (the models over qtest, no guest),
``images`` (the files VMs are made of).  Markers: ``needs``, ``icount``, ``debug_kernel``, ``seed``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from ummulab.pytest_plugin import evidence, features, keep
from ummulab.pytest_plugin.lab import LAB, Lab, VmFactory

if TYPE_CHECKING:
    from ummulab.build import Images
    from ummulab.qtest.machine import QtestMachine
    from ummulab.vm import Vm

MARKERS = (
    "needs(*features): skip, with the reason, where the guest or host lacks one (see ummulab.pytest_plugin.features)",
    "icount: run this test's VMs with repeatable guest time",
    "debug_kernel: run this test's VMs with the kernel that has sanitizers and lock checking",
    "seed(n): the seed of a random test; --seed overrides it, a failure prints it",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the plugin."""
    group = parser.getgroup("ummulab", "virtual machines with a UMMU")
    group.addoption(
        "--guest-arch", metavar="ARCH", help="guest architecture (default: GUEST_ARCH, or aarch64)"
    )
    group.addoption("--accel", default="tcg", choices=("auto", "tcg", "kvm"), help="QEMU accelerator (tcg)")
    group.addoption("--images", metavar="DIR", help="prebuilt QEMU and images, as UMMULAB_IMAGES")
    group.addoption(
        "--keep-vm",
        action="store_true",
        help="after a failure give the VM's console; needs -n0 and a terminal",
    )
    group.addoption(
        "--vm-log-dir", metavar="DIR", help="write kernel, console and QEMU logs of all VMs there"
    )
    group.addoption("--vm-console", action="store_true", help="show the guest's kernel log live; needs -s")
    group.addoption("--seed", type=lambda text: int(text, 0), help="seed of random tests")


def pytest_configure(config: pytest.Config) -> None:
    """Register markers; make what all tests of this process share."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    config.stash[LAB] = Lab.from_config(config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here, and say why."""
    wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
    reason = features.missing(wanted, item.config.stash[LAB].arch)
    if reason:
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the VM's side of a failure into the report, and facts into JUnit properties."""
    report = yield
    lab = item.config.stash[LAB]
    vms = lab.vms_of(item)
    if report.when == "call" and vms:
        item.user_properties.extend(evidence.properties(vms))
    if report.when != "teardown" and report.failed and vms:
        report.sections.extend(evidence.sections(vms))
        report.sections.append(("ummulab: again, and then the VM's prompt", keep.command_line(item)))
        if item.config.getoption("--keep-vm"):
            keep.offer(item.config, vms)
    return report


@pytest.fixture(scope="session")
def images(pytestconfig: pytest.Config) -> Images:
    """QEMU, kernel and initramfs, built or taken from --images."""
    return pytestconfig.stash[LAB].session().images


@pytest.fixture
def vm_factory(request: pytest.FixtureRequest) -> Iterator[VmFactory]:
    """A function that starts one more VM: ``vm_factory(memory_mib=512, boot=True)``.

    Keyword arguments are those of ``ummulab.vm.VmConfig``, and ``boot`` (do not clone) and ``state``
    (a saved VM to start from).  All VMs end with the test.
    """
    with VmFactory(request.config.stash[LAB], request.node) as factory:
        yield factory


@pytest.fixture
def vm(vm_factory: VmFactory) -> Vm:
    """A fresh VM: a clone of the booted template, costing about a tenth of a second."""
    return vm_factory()


@pytest.fixture(scope="module")
def module_vm(request: pytest.FixtureRequest) -> Iterator[Vm]:
    """One VM for all tests of a module that leave nothing behind."""
    with VmFactory(request.config.stash[LAB], request.node) as factory:
        yield factory()


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[QtestMachine]:
    """The models without a guest: QEMU under qtest, registers and memory at hand."""
    from ummulab.qtest.machine import DEFAULT_DEVICES, QtestMachine

    with QtestMachine(getattr(request.module, "DEVICES", DEFAULT_DEVICES)) as machine:
        yield machine


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a random test: --seed, the marker's, or 1.  It is printed, so a failure shows it."""
    mark = request.node.get_closest_marker("seed")
    given = request.config.getoption("--seed")
    value = given if given is not None else (mark.args[0] if mark and mark.args else 1)
    print(f"seed {value:#x} (again: --seed {value:#x})")
    return int(value)
