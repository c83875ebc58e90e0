# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab bench device``: what translations and copies of the device models cost, without a guest.

Copies are timed in CPU time of QEMU, look-ups inside it (QOM property ``benchmark-request``).  Beside them, in the same
run: the host's own memcpy of the same memory, and QEMU's ``edu`` device copying the same bytes.  Every figure is the
best of its rounds: what else runs on the host can only add.
"""

from __future__ import annotations

from ummulab.bench import BenchOptions, Row


def bench_device(options: BenchOptions) -> list[Row]:
    """Copies in bytes/s (``ratio``: to the host's memcpy), look-ups in ns per look-up.

    Names: ``copy_64m_4k``, ``copy_64m_2m`` (COPY through MAPT with token, over pages that are scattered in memory),
    ``edu_copy_64m``, ``host_memcpy_64m``; ``lookup_hit`` (TLB and PLB hit), ``lookup_miss`` (TECT, TCT, 4-level MAPT
    and 4-level MATT are all read), and the same with 10^5 ranges and with 10^5 TIDs (baseline: ``lookup_miss``).
    """
    from ummulab.devicebench.copies import measure_copies
    from ummulab.devicebench.lookups import measure_lookups

    return measure_copies(options.arch, options.repeat) + measure_lookups(options.arch, options.repeat)
