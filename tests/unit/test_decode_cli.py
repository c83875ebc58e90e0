# SPDX-License-Identifier: GPL-2.0-or-later
"""``ummulab decode`` and ``explain`` on a memory dump: what they print, and their exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_memory_sources import core
from ummulab import cli, layouts
from ummulab.decode import explain as why
from ummulab.decode.source import parse_answer, request_text
from ummulab.decode.view import DeviceAnswer, View
from ummulab.fuzz.image import S1_RO, S1_RW, Builder, Mapt, PageTable
from ummulab.model import Access, Request

EID, TAG, TID, VA = 0x100, 2, 0x42, 0x7F00_0000_0000


def make() -> Builder:
    """One context: three mapped pages, a grant with a token over one and a half, a read-only one."""
    b = Builder()
    b.entity(TAG, EID)
    pt = PageTable(b.image)
    for i in range(3):
        pt.map(VA + i * 4096, 0x5000_0000 + i * 4096, S1_RW | (S1_RO if i == 2 else 0))
    table = Mapt(b.image)
    table.grant(VA, VA + 0x17FF, PERMISSION=3, TOKEN_CHK=1, TOKEN_VAL_0=0xAA, TOKEN_VAL_1=0xBB, E_BIT=1)
    table.grant(VA + 0x2000, VA + 0x2FFF, PERMISSION=2)
    b.context(TAG, TID, pt, table)
    base = b.image.take(1024, 1024)
    b.image.write(base, layouts.build("EVT", CODE=0x13, TID=TID, TECTE_TAG=TAG, IADDR=VA, RNW=1))
    b.registers.update(EVENT_QUE_BASE=base | 4, EVENT_QUE_PI=1, EVENT_QUE_CI=0)
    return b


@pytest.fixture
def dump(tmp_path: Path) -> list[str]:
    """Source options for a dump of that set-up."""
    b = make()
    kv = b.image.take(4096)
    slot = bytearray(layouts.build("KV_ENTRY", V=1, TECTE_TAG=TAG))
    slot[16:] = EID.to_bytes(16, "little")
    b.image.write(kv, bytes(slot))
    b.registers.update(DSTEID_KV_TABLE_BASE=kv, DSTEID_KV_TABLE_BASE_CFG=0x0001_0800)
    pages = list(b.image.pages())
    used = [
        (a, b.image.read(a, 1 << 20)) for a in range(b.image.base + (16 << 20), pages[-1][0] + 4096, 1 << 20)
    ]
    (tmp_path / "core").write_bytes(core(used))
    (tmp_path / "regs.json").write_text(json.dumps(b.registers))
    return ["--core", str(tmp_path / "core"), "--regs", str(tmp_path / "regs.json")]


def run(*args: str) -> Result:
    """Run the command line."""
    return CliRunner().invoke(cli.app, list(args))


def rows(*args: str) -> list[dict[str, Any]]:
    """The rows of a JSON report."""
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert data["problems"] == []
    found: list[dict[str, Any]] = data["rows"]
    return found


def test_regs(dump: list[str]) -> None:
    found = {r["name"]: r for r in rows("decode", "regs", *dump)}
    assert found["CTRL0"]["fields"] == {"UMMU_EN": 1, "EVENTQ_EN": 1, "VMID_WILDCARD_T": 0, "MAPT_EN": 1}


def test_saved_registers_can_be_given_back(dump: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(run("decode", "regs", *dump, "--json").stdout)
    assert rows("decode", "tct", *dump[:2], "--regs", str(saved)) == rows("decode", "tct", *dump)


def test_tect_and_tct(dump: list[str]) -> None:
    (entity,) = rows("decode", "tect", *dump)
    assert (entity["tag"], entity["eids"], entity["fields"]["ST_MODE"]) == (TAG, ["0x100"], 5)
    (context,) = rows("decode", "tct", *dump, "--eid", "0x100", "--tid", "0x42")
    assert (context["tid"], context["check"], len(context["words"])) == (TID, "ok", 8)
    assert rows("decode", "tct", *dump, "--tid", "0x43") == []


def test_matt(dump: list[str]) -> None:
    found = rows("decode", "matt", *dump, "--tid", "0x42")
    assert [(r["va"], r["pa"], r["size"], r["leaves"]) for r in found] == [
        (VA, 0x5000_0000, 0x2000, 2),
        (VA + 0x2000, 0x5000_2000, 0x1000, 1),
    ]
    (one,) = rows("decode", "matt", *dump, "--tid", "0x42", "--va", hex(VA + 0x1123))
    assert one["pa"] == 0x5000_1000


def test_mapt(dump: list[str]) -> None:
    found = rows("decode", "mapt", *dump, "--tid", "0x42")
    assert [(r["first"], r["last"], r["rights"], r["token"]) for r in found] == [
        (VA, VA + 0xFFF, "rw-", "0xaa/0xbb"),
        (VA + 0x1000, VA + 0x17FF, "rw-", "0xaa/0xbb"),
        (VA + 0x2000, VA + 0x2FFF, "r--", "-"),
    ]
    path = rows("decode", "mapt", *dump, "--tid", "0x42", "--va", hex(VA))
    assert [r["level"] for r in path] == [0, 1, 2, 3]
    assert all(r["addr"] and len(r["words"]) == 8 for r in path)


def test_eventq(dump: list[str]) -> None:
    (event,) = rows("decode", "eventq", *dump)
    assert (event["event"], event["state"], event["fields"]["IADDR"]) == ("EVT_P_PERMISSION", "pending", VA)
    assert rows("decode", "eventq", *dump, "--tid", "1") == []


@pytest.mark.parametrize("kind", ["regs", "tect", "tct", "matt", "mapt", "queues", "eventq"])
def test_tables_for_people(dump: list[str], kind: str) -> None:
    result = run("decode", kind, *dump, "--raw")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


def test_damage_is_shown_and_makes_the_status_1(dump: list[str], tmp_path: Path) -> None:
    values = json.loads((tmp_path / "regs.json").read_text())
    values["TECT_BASE"] = 1 << 44
    (tmp_path / "regs.json").write_text(json.dumps(values))
    result = run("decode", "tect", *dump)
    assert result.exit_code == 1
    assert "damaged: TECT[0x0..] at 0x100000000000" in result.stdout


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["decode", "tables"], "'tables' is not one of"),
        (["decode", "tct", "--tid", "0x100000"], "does not fit 20 bits"),
        (["decode", "tct", "--tid", "one"], "'one' is not a number"),
        (["explain", "--tid", "1"], "Missing option '--va'"),
        (["explain", "--tid", "1", "--va", "0", "--access", "x"], "'x' is not one of"),
    ],
)
def test_wrong_usage(args: list[str], text: str) -> None:
    result = run(*args)
    assert result.exit_code == 2 and text in result.output


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--regs", "x"], "--regs goes with --core"),
        (["--core", "x", "--vm", "y", "--regs", "z"], "--vm and --core exclude each other"),
        (["--core", "/nonexistent/file", "--regs", "/nonexistent/regs"], "cannot read"),
        (["--core", "x"], "a dump has no registers"),
        (["--eid", "1", "--tag", "1"], "--eid and --tag exclude each other"),
    ],
)
def test_contradicting_sources(args: list[str], text: str) -> None:
    result = run("decode", "tct", *args)
    assert result.exit_code != 0 and result.exception is not None
    assert text in str(result.exception)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"CTRL0": "x"}', "CTRL0: 'x' is not a number"),
    ],
)
def test_bad_register_files(dump: list[str], tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    result = run("decode", "tct", *dump[:2], "--regs", str(tmp_path / "bad.json"))
    assert text in str(result.exception)


def test_unbound_eid(dump: list[str]) -> None:
    result = run("decode", "tct", *dump, "--eid", "7")
    assert "EID 0x7 is not bound to a tag (bound EIDs: 0x100)" in str(result.exception)


# ------------------------------------------------------------------ explain
def ask(request: Request, answer: DeviceAnswer | None = None) -> why.Explanation:
    """Explain a request on that set-up, with a device that gives ``answer``."""
    b = make()
    return why.explain(
        View(b.image, b.registers, b.kv, probe=None if answer is None else lambda _: answer), request
    )


BASE = Request(EID, TID, VA, 16, Access.READ, 0xAA)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"token": 1}, "wrong token: the grant wants 0xaa, the request has token 0x1"),
        ({"token": None}, "wrong token: the grant wants 0xaa, the request has no token"),
        ({"e_bit": 0}, "E_bit: send it as a trusted local request (E_bit 1)"),
        ({"uba": VA + 0x17F3}, "3 bytes past the end: the first 13 are allowed"),
        ({"uba": VA + 0x1800, "length": 1}, "1 byte past the end of the grant at 0x7f00000017ff"),
        ({"uba": VA + 0x2000, "access": Access.WRITE}, "read-only: the grant allows read"),
        ({"access": Access.ATOMIC}, "atomic is not granted: the grant allows read and write"),
        ({"uba": VA + 0x8000, "length": 1}, "not granted: ummu_grant() this range to the TID"),
        ({"tid": 0x43}, "no such TID: allocate it"),
        ({"eid": 9}, "bind the EID to a tag (CMD_CREATE_KVTBL)"),
        ({"uba": VA | 1 << 60}, "the address has bits above the input size"),
    ],
)
def test_the_shortest_change(changes: dict[str, Any], text: str) -> None:
    request = Request(**{**vars(BASE), **changes})
    assert ask(request).change == text


def test_nearest_grants() -> None:
    out = ask(Request(EID, TID, VA + 0x1900, 4))
    assert out.nearest == [
        "[0x7f0000001000, 0x7f00000017ff] ends 257 bytes below",
        "[0x7f0000002000, 0x7f0000002fff] starts 1792 bytes above",
    ]


@pytest.mark.parametrize(
    ("answer", "difference"),
    [
        (DeviceAnswer("ok", "", 0x5000_0000, 16, 0), ""),
        (DeviceAnswer("ok", "", 0x5000_0000, 8, 0), ""),
        (DeviceAnswer("ok", "", 0x5000_0000, 17, 0), "device covers 17 bytes, model 16"),
        (DeviceAnswer("ok", "", 0x5000_1000, 16, 0), "model gives 0x50000000, device 0x50001000"),
        (DeviceAnswer("fault", "EVT_ACCESS", 0, 0, VA), "model allows 16 bytes, device: fault EVT_ACCESS"),
    ],
)
def test_agreement_on_an_allowed_request(answer: DeviceAnswer, difference: str) -> None:
    out = ask(BASE, answer)
    assert (out.difference, out.agrees) == (difference, not difference)


@pytest.mark.parametrize(
    ("answer", "difference"),
    [
        (DeviceAnswer("fault", "EVT_P_PERMISSION", 0, 0, VA), ""),
        (
            DeviceAnswer("fault", "EVT_P_PERMISSION", 0, 0, VA + 1),
            "model refuses at 0x7f0000000000, device at 0x7f0000000001",
        ),
        (DeviceAnswer("fault", "", 0, 0, VA), "model: fault EVT_P_PERMISSION, device: fault (silent)"),
        (DeviceAnswer("ok", "", 0x5000_0000, 16, 0), "model: fault EVT_P_PERMISSION, device: ok (silent)"),
    ],
)
def test_agreement_on_a_refused_request(answer: DeviceAnswer, difference: str) -> None:
    assert ask(Request(EID, TID, VA, 16, Access.READ, 1), answer).difference == difference


def test_explain_prints_steps_with_addresses_and_raw_words(dump: list[str]) -> None:
    args = ["explain", *dump, "--tid", "0x42", "--va", hex(VA), "--len", "8"]
    result = run(*args, "--token", "0xaa")
    assert result.exit_code == 0, result.output
    assert "ALLOWED: read of 8 bytes at 0x7f0000000000 -> 0x50000000 (8)" in result.stdout
    assert "[6.2] MAPT level 3 node 0" in result.stdout and "device: not asked" in result.stdout
    result = run(*args, "--token", "1")
    assert result.exit_code == 3
    assert "REFUSED: read of 8 bytes at 0x7f0000000000: EVT_P_PERMISSION (0x13), section 6.3" in result.stdout
    assert "to allow it: wrong token: the grant wants 0xaa" in result.stdout


def test_explain_json(dump: list[str]) -> None:
    result = run("explain", *dump, "--tid", "0x42", "--va", hex(VA + 0x2000), "--access", "w", "--json")
    out = json.loads(result.stdout)
    assert (result.exit_code, out["event"], out["reason"], out["agrees"]) == (
        3,
        "EVT_P_PERMISSION",
        "access-type",
        None,
    )
    nodes = [s for s in out["steps"] if s["what"].startswith("MAPT level")]
    assert len(nodes) == 4 and all(s["addr"] and len(s["words"]) == 8 for s in nodes)


def test_request_text_and_answer() -> None:
    text = request_text(Request(1 << 64 | 2, 5, 0x1000, 64, Access.WRITE, 7, 0, False, True))
    assert text == "eid=0x2,eid-hi=0x1,tid=0x5,uba=0x1000,len=64,access=write,e-bit=0,priv=0,inst=1,token=0x7"
    assert parse_answer({"status": "ok", "event": "", "pa": 1, "len": 2, "fault-addr": 3}).length == 2
