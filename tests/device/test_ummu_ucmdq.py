# SPDX-License-Identifier: GPL-2.0-or-later
"""User command queues and their control pages (hardware text 11, case V13)."""

from __future__ import annotations

import struct

import pytest
from core_helper import CTRL_PAGES, EVENTQ_EN, MAPT_EN, Core
from ummulab.qtest.machine import QtestMachine
from ummulab.spec import load

DEVICES = ("ummu,id=ummu0",)
SPEC = load()
CONTEXT, UCMD, UCPL = (SPEC.structures[n] for n in ("MAPT_CMDQ_CTX", "UCMD", "UCPL"))
PSYNC, PLBI_ALL, PLBI_VA = (SPEC.ucommands[n] for n in ("PSYNC", "PLBI_USR_ALL", "PLBI_USR_VA"))
SUCCESS, BAD_COMMAND = 1, 2
CONTEXTS_LOG2 = 8
HOLE = 0x3F800000000
PI, CI, CPL_PI, CPL_CI = 0, 4, 8, 12


@pytest.fixture
def core(machine: QtestMachine) -> Core:
    core = Core(machine)
    core.user_contexts(CONTEXTS_LOG2)
    core.start()
    return core


class UserQueue:
    """One user queue as kernel (set-up) and process (commands) see it."""

    def __init__(self, core: Core, qid: int = 5, cmd_log2: int = 8, cpl_log2: int = 10, tag: int = 3,
                 tid: int = 0x12345, stride: int = 0x1000) -> None:  # fmt: skip
        self.core, self.qid, self.cmd_log2, self.cpl_log2 = core, qid, cmd_log2, cpl_log2
        self.page = CTRL_PAGES + qid * stride
        self.ring = core.arena.take(max(16 << cmd_log2, 4096))
        self.completions = core.arena.take(max(4 << cpl_log2, 4096))
        self.context = core.contexts + 64 * qid
        self.tag, self.tid = tag, tid
        self.pi = 0
        self.open()

    def open(self, **changes: int) -> None:
        """The kernel's set-up: context, then the four indexes with 32-bit stores."""
        values = {"STATUS": 1, "UCMDQ_QSIZE": self.cmd_log2, "UCMDQ_BASE": self.ring >> 12,
                  "UCPLQ_QSIZE": self.cpl_log2, "UCPLQ_BASE": self.completions >> 12, "TECTE_TAG": self.tag,
                  "TID": self.tid} | changes  # fmt: skip
        self.core.arena.write(self.context, CONTEXT.pack(**values))
        for register in (CI, PI, CPL_PI, CPL_CI):
            self.core.write(self.page + register, 0, 4)
        self.pi = 0

    def index(self, register: int) -> int:
        """Read an index as libummu does."""
        return self.core.read(self.page + register, 2)

    def indexes(self) -> tuple[int, int, int, int]:
        """(PI, CI, completion PI, completion CI)."""
        return self.index(PI), self.index(CI), self.index(CPL_PI), self.index(CPL_CI)

    def put(self, opcode: int, cqe: int = 0, **fields: int) -> int:
        """One command; returns its index with wrap bit."""
        at = self.pi
        slot = self.ring + (at & ((1 << self.cmd_log2) - 1)) * 16
        self.core.arena.write(slot, UCMD.pack(OPCODE=opcode, CQE_EN=cqe, **fields))
        self.pi = (at + 1) & ((2 << self.cmd_log2) - 1)
        return at

    def bell(self) -> None:
        """The 16-bit doorbell."""
        self.core.write(self.page + PI, self.pi, 2)

    def completion(self, number: int) -> tuple[int, int]:
        """(STATUS, CMDQ_CI) of entry ``number`` of the completion ring."""
        fields = UCPL.unpack(self.core.arena.read(self.completions + 4 * number, 4))
        return fields["STATUS"], fields["CMDQ_CI"]

    def consume(self, count: int) -> None:
        """Move the consumer of the completion ring."""
        ci = (self.index(CPL_CI) + count) & ((2 << self.cpl_log2) - 1)
        self.core.write(self.page + CPL_CI, ci, 2)


def test_plbi_and_psync_complete_inside_the_doorbell(core: Core) -> None:
    q = UserQueue(core)
    q.put(PLBI_VA, RANGE=12, ADDR_LO=0x1234, ADDR_HI=0x7F)
    sync = q.put(PSYNC, cqe=1)
    q.bell()
    assert q.completion(0) == (SUCCESS, sync)
    assert q.indexes() == (2, 2, 1, 0)
    assert core.qom("plb-invalidations") == 1 and core.qom("user-commands") == 2


def test_set_up_writes_start_nothing(core: Core) -> None:
    q = UserQueue(core)
    q.open()
    assert core.qom("user-commands") == 0 and core.qom("guest-errors") == 0
    for register in (CI, CPL_PI, CPL_CI):
        core.write(q.page + register, 7, 2)
    assert core.qom("user-commands") == 0


@pytest.mark.parametrize("cqe", [0, 1])
@pytest.mark.parametrize("opcode", [PSYNC, PLBI_ALL, PLBI_VA])
def test_completion_only_when_asked_for(core: Core, opcode: int, cqe: int) -> None:
    q = UserQueue(core)
    q.put(opcode, cqe)
    q.bell()
    assert q.index(CPL_PI) == cqe
    assert q.completion(0) == ((SUCCESS, 0) if cqe else (0, 0))


@pytest.mark.parametrize("opcode", [0x00, 0x02, 0x0F, 0x12, 0x60, 0xFF])
@pytest.mark.parametrize("cqe", [0, 1])
def test_unknown_opcode_is_reported_and_passed(core: Core, opcode: int, cqe: int) -> None:
    q = UserQueue(core)
    q.put(opcode, cqe)
    sync = q.put(PSYNC, 1)
    q.bell()
    assert [q.completion(0), q.completion(1)] == [(BAD_COMMAND, 0), (SUCCESS, sync)]


@pytest.mark.parametrize("cmd_log2, cpl_log2", [(1, 1), (2, 4), (8, 10), (15, 15)])
def test_v13_three_turns_of_the_rings(core: Core, cmd_log2: int, cpl_log2: int) -> None:
    """Completions carry the index with wrap bit, in every turn."""
    q = UserQueue(core, cmd_log2=cmd_log2, cpl_log2=cpl_log2)
    size = 1 << cmd_log2
    step = max(1, size // 4)
    seen = 0
    for _ in range(3 * size // step):
        expected = [q.put(PSYNC, 1) for _ in range(step)]
        q.bell()
        got = []
        for _ in expected:
            got.append(q.completion(seen % (1 << cpl_log2)))
            seen += 1
            q.consume(1) if step < 16 else None
        assert got == [(SUCCESS, at) for at in expected]
        if step >= 16:
            q.consume(step)
    assert q.index(CI) == q.pi == (3 * size) % (2 * size)
    assert core.qom("user-completions") == 3 * size


def test_v13_300_ungrants(core: Core) -> None:
    q = UserQueue(core)
    for n in range(300):
        q.put(PLBI_VA, RANGE=12, ADDR_LO=n << 12)
        sync = q.put(PSYNC, 1)
        q.bell()
        assert q.completion(n % 1024) == (SUCCESS, sync)
        q.consume(1)


def test_v13_full_completion_ring_blocks_and_resumes(core: Core) -> None:
    q = UserQueue(core, cmd_log2=3, cpl_log2=1)
    syncs = [q.put(PSYNC, 1) for _ in range(8)]
    q.bell()
    assert q.index(CI) == 2 and q.index(CPL_PI) == 2, "two fit, the third waits"
    assert core.qom("queues")["user5"]["state"] == "blocked"
    got = [q.completion(0), q.completion(1)]
    for n in range(2, 8):
        q.consume(1)
        got.append(q.completion(n % 2))
    assert got == [(SUCCESS, at) for at in syncs], "nothing lost, nothing twice"
    assert q.index(CI) == 8 and core.qom("queues")["user5"]["state"] == "live"


def test_v13_blocked_queue_still_takes_commands_without_completion(core: Core) -> None:
    q = UserQueue(core, cmd_log2=4, cpl_log2=1)
    for _ in range(3):
        q.put(PSYNC, 1)
    q.put(PLBI_ALL)
    q.bell()
    assert q.index(CI) == 2, "commands keep their order"
    assert core.qom("plb-invalidations") == 0
    q.consume(2)
    assert q.index(CI) == 4 and core.qom("plb-invalidations") == 1


@pytest.mark.parametrize("pi", [0x1FF, 0x101, 0x180, 0xFFFF])
def test_v13_pi_more_than_a_ring_ahead(core: Core, pi: int) -> None:
    q = UserQueue(core)
    core.write(q.page + PI, pi, 2)
    assert core.qom("user-commands") == 0 and core.qom("guest-errors") == 1
    assert q.index(CI) == 0
    q.put(PSYNC, 1)
    q.bell()
    assert q.completion(0) == (SUCCESS, 0), "a sane index works afterwards"


def test_v13_pi_moved_backwards_executes_nothing_twice(core: Core) -> None:
    q = UserQueue(core, cmd_log2=3)
    for _ in range(4):
        q.put(PLBI_ALL)
    q.bell()
    core.write(q.page + PI, 2, 2)
    core.write(q.page + PI, 3, 2)
    core.write(q.page + PI, 4, 2)
    assert core.qom("plb-invalidations") == 4


def test_v13_pi_equal_to_ci_starts_nothing(core: Core) -> None:
    q = UserQueue(core)
    core.write(q.page + PI, 0, 2)
    assert core.qom("user-commands") == 0 and core.qom("guest-errors") == 0


def test_v13_indexes_of_a_live_queue_are_the_devices(core: Core) -> None:
    q = UserQueue(core)
    q.put(PSYNC, 1)
    q.bell()
    core.write(q.page + CI, 0, 2)
    core.write(q.page + CPL_PI, 0, 4)
    assert q.indexes() == (1, 1, 1, 0)
    assert core.qom("guest-errors") == 2


def test_v13_release_and_use_again(core: Core) -> None:
    q = UserQueue(core)
    for _ in range(3):
        q.put(PSYNC, 1)
    q.bell()
    core.regs.write("RELEASE_UM_QUEUE_ID", q.qid)
    core.regs.write("RELEASE_UM_QUEUE", 1)
    assert core.regs.read("RELEASE_UM_QUEUE") == 0
    assert q.indexes() == (0, 0, 0, 0)
    old = q.ring, q.completions
    for at in old:
        core.arena.write(at, b"\xc5" * 4096)
    again = UserQueue(core)
    sync = again.put(PSYNC, 1)
    again.bell()
    assert again.completion(0) == (SUCCESS, sync)
    for at in old:
        assert core.arena.read(at, 4096) == b"\xc5" * 4096, "the old rings were touched after the release"


def test_v13_release_of_a_blocked_queue(core: Core) -> None:
    q = UserQueue(core, cmd_log2=3, cpl_log2=1)
    for _ in range(8):
        q.put(PSYNC, 1)
    q.bell()
    core.regs.write("RELEASE_UM_QUEUE_ID", q.qid)
    core.regs.write("RELEASE_UM_QUEUE", 1)
    core.arena.write(q.context, CONTEXT.pack())
    core.arena.write(q.completions, b"\xc5" * 4096)
    core.write(q.page + CPL_CI, 1, 2)
    assert core.arena.read(q.completions, 4096) == b"\xc5" * 4096
    assert core.qom("queues")["user5"]["state"] == "idle"


@pytest.mark.parametrize("qid", [256, 65536, 0x7FFFFFFF])
def test_release_of_a_queue_that_does_not_exist(core: Core, qid: int) -> None:
    core.regs.write("RELEASE_UM_QUEUE_ID", qid)
    core.regs.write("RELEASE_UM_QUEUE", 1)
    assert core.regs.read("RELEASE_UM_QUEUE") == 0 and core.qom("guest-errors") == 1


# ---- when a doorbell is ignored ---------------------------------------------------------------------------------


def ring_must_not_run(core: Core, q: UserQueue) -> None:
    q.put(PSYNC, 1)
    q.bell()
    assert core.qom("user-commands") == 0 and core.qom("guest-errors") == 1
    assert q.completion(0) == (0, 0) and q.index(CI) == 0


def test_doorbell_with_mapt_off(core: Core) -> None:
    q = UserQueue(core)
    core.regs.write("CTRL0", EVENTQ_EN)
    errors = core.qom("guest-errors")
    q.put(PSYNC, 1)
    q.bell()
    assert core.qom("user-commands") == 0 and core.qom("guest-errors") == errors + 1
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN)
    q.bell()
    assert q.completion(0) == (SUCCESS, 0)


@pytest.mark.parametrize("status", [0, 2, 3])
def test_doorbell_with_a_context_that_is_not_ready(core: Core, status: int) -> None:
    q = UserQueue(core)
    q.core.arena.write(q.context, CONTEXT.pack(STATUS=status, UCMDQ_QSIZE=8, UCMDQ_BASE=q.ring >> 12))
    ring_must_not_run(core, q)


def test_doorbell_beyond_the_context_table(core: Core) -> None:
    core.regs.write("CTRL0", EVENTQ_EN)
    core.regs.write("MAPT_CMDQ_CTXT_BADDR", core.contexts | 2)
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN)
    last = UserQueue(core, qid=3)
    last.put(PSYNC, 1)
    last.bell()
    assert last.completion(0) == (SUCCESS, 0)
    beyond = UserQueue(core, qid=4)
    errors = core.qom("guest-errors")
    beyond.put(PSYNC, 1)
    beyond.bell()
    assert beyond.completion(0) == (0, 0) and core.qom("guest-errors") == errors + 1


@pytest.mark.parametrize("log2", [17, 31])
def test_v17_context_table_exponent_above_the_capability(core: Core, log2: int) -> None:
    core.regs.write("CTRL0", EVENTQ_EN)
    core.regs.write("MAPT_CMDQ_CTXT_BADDR", core.contexts | log2)
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN)
    assert core.qom("guest-errors") == 1
    q = UserQueue(core, qid=255)
    q.put(PSYNC, 1)
    q.bell()
    assert q.completion(0) == (SUCCESS, 0)


# ---- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", ["UCMDQ_BASE", "UCPLQ_BASE"])
@pytest.mark.parametrize("where", ["hole", "bar"])
def test_ring_outside_ram_stops_the_queue(core: Core, ring: str, where: str) -> None:
    q = UserQueue(core)
    q.open(**{ring: (HOLE if where == "hole" else core.base) >> 12})
    image = core.image()
    q.put(PSYNC, 1)
    q.bell()
    context = CONTEXT.unpack(core.arena.read(q.context, 64))
    assert context["STATUS"] == 2 and context["UCMDQ_QSIZE"] == 8, "only the status changes"
    assert core.qom("queues")["user5"]["state"] == "error"
    assert core.image() == image
    q.bell()
    assert core.qom("user-queue-errors") == 1, "a stopped queue stays stopped"
    q.open()
    sync = q.put(PSYNC, 1)
    q.bell()
    assert q.completion(0) == (SUCCESS, sync), "a new set-up revives it"


def test_context_table_outside_ram(core: Core) -> None:
    q = UserQueue(core)
    core.regs.write("CTRL0", EVENTQ_EN)
    core.regs.write("MAPT_CMDQ_CTXT_BADDR", HOLE | CONTEXTS_LOG2)
    core.regs.write("CTRL0", EVENTQ_EN | MAPT_EN)
    q.put(PSYNC, 1)
    q.bell()
    assert core.qom("user-queue-errors") == 1 and core.qom("user-commands") == 0


def test_context_fields_of_all_ones(core: Core) -> None:
    """STATUS stays 1; every other bit of the context is set."""
    q = UserQueue(core)
    words = [0xFFFFFFFFFFFFFFFD] + [0xFFFFFFFFFFFFFFFF] * 7
    core.arena.write(q.context, struct.pack("<8Q", *words))
    q.put(PSYNC, 1)
    q.bell()
    assert core.qom("queues")["user5"]["state"] == "error"


@pytest.mark.parametrize("log2", [12, 15])
def test_v17_ring_size_above_the_capability(log2: int) -> None:
    with QtestMachine(("ummu,id=ummu0,ucmdq-size-log2=4,ucplq-size-log2=4",)) as machine:
        core = Core(machine)
        core.user_contexts(CONTEXTS_LOG2)
        core.start()
        q = UserQueue(core, cmd_log2=4, cpl_log2=4)
        q.open(UCMDQ_QSIZE=log2, UCPLQ_QSIZE=log2)
        for _ in range(5):
            expected = [q.put(PSYNC, 1) for _ in range(16)]
            q.bell()
            assert [q.completion(n) for n in range(16)] == [(SUCCESS, at) for at in expected]
            q.consume(16)


# ---- several queues ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_sel, stride", [(1, 0x1000), (0, 0x10000)])
def test_v16_two_queues_interleaved(core: Core, page_sel: int, stride: int) -> None:
    core.regs.write("UMCMD_PAGE_SEL", page_sel)
    a, b = UserQueue(core, qid=0, stride=stride), UserQueue(core, qid=255, stride=stride)
    for n in range(5):
        first, second = a.put(PSYNC, 1), b.put(PSYNC, 1)
        a.bell()
        assert a.completion(n) == (SUCCESS, first) and b.completion(n) == (0, 0)
        b.bell()
        assert b.completion(n) == (SUCCESS, second)
