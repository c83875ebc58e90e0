# SPDX-License-Identifier: MIT
"""A project of its own that tests its software in a VM with a UMMU: copy this folder."""


def test_my_program(vm):
    assert vm.run(["ummu-demo", "zero-copy"], check=True).text.endswith("zero-copy: ok\n")
