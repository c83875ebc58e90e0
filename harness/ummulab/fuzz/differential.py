# SPDX-License-Identifier: GPL-2.0-or-later
"""Device against reference model on damaged tables: find, shrink, save, replay.

A :class:`Recipe` says everything: which ranges are granted, which table words are then overwritten, what is
asked.  It is built from a seed, applied to a machine that was just reset, and always gives the same image,
so a saved recipe (a readable YAML file) is a regression test.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ummulab.decode.explain import disagreement
from ummulab.decode.source import device_view, parse_answer, request_text
from ummulab.decode.view import View
from ummulab.errors import UserError
from ummulab.memory import MemoryReadError
from ummulab.model import Access, Request, resolve
from ummulab.qtest.bench import CANARY_SIZE, CANARY_VA, PERIPHERAL, TID, Bench
from ummulab.qtest.errors import QtestError
from ummulab.qtest.machine import QtestMachine

FORMAT = 1
TOKENS = (0, 1, 0x5EED, 0xFFFFFFFF)
#: Places in the tables that a damage can name; the second number is the level, or -1.
PLACES = (
    *(("tecte", -1), ("tcte", -1)),
    *(("matt", level) for level in range(4)),
    *(("mapt", level) for level in range(4)),
)
WORDS = {"tecte": 8, "tcte": 8, "matt": 1, "mapt": 4}


@dataclass(frozen=True)
class Grant:
    """A range of TID 1: pages of BASE's canary memory."""

    va: int
    length: int
    permission: int
    token: int | None
    token2: int | None
    e_bit: int


@dataclass(frozen=True)
class Damage:
    """One 64-bit word of a table entry on the way to ``va`` is overwritten."""

    place: str
    level: int
    va: int
    word: int
    value: int


@dataclass(frozen=True)
class Question:
    """One request of DstEID 0x100."""

    va: int
    length: int
    access: str
    token: int | None
    e_bit: int
    privileged: bool
    tid: int = TID

    def request(self, eid: int) -> Request:
        """For device and model."""
        return Request(
            eid,
            self.tid,
            self.va,
            self.length,
            Access[self.access],
            self.token,
            self.e_bit,
            self.privileged,
        )


@dataclass(frozen=True)
class Recipe:
    """An image and what is asked of it."""

    grants: tuple[Grant, ...] = ()
    damages: tuple[Damage, ...] = ()
    questions: tuple[Question, ...] = field(default=())


@dataclass(frozen=True)
class Finding:
    """A question on which device and model differ."""

    recipe: Recipe
    question: Question
    text: str


def random_recipe(seed: int | str, questions: int = 200) -> Recipe:
    """Valid tables, then a few words damaged, then questions near the grants."""
    rng = random.Random(seed)
    grants = tuple(_random_grant(rng, slot) for slot in rng.sample(range(16), rng.randrange(1, 6)))
    places = [grant.va + rng.choice([0, grant.length - 1, grant.length]) for grant in grants]
    damages = tuple(_random_damage(rng, rng.choice(places)) for _ in range(rng.choice([0, 0, 1, 1, 2, 3])))
    asked = tuple(_random_question(rng, grants) for _ in range(questions))
    return Recipe(grants, damages, asked)


def _random_grant(rng: random.Random, slot: int) -> Grant:
    va = CANARY_VA + slot * (CANARY_SIZE // 16) + 4096 * rng.randrange(8)
    length = rng.choice([1, 4095, 4096, 5000, 0x3000, 0x10000, 0x40000])
    token = rng.choice([None, *TOKENS])
    second = rng.choice([None, *TOKENS]) if token is not None else None
    return Grant(va, length, rng.randrange(8), token, second, rng.choice([0, 0, 1]))


def _random_damage(rng: random.Random, va: int) -> Damage:
    place, level = rng.choice(PLACES)
    value = rng.choice([0, 1, rng.getrandbits(64), 1 << rng.randrange(64), (1 << 64) - 1])
    return Damage(place, level, va, rng.randrange(WORDS[place]), value)


def _random_question(rng: random.Random, grants: Sequence[Grant]) -> Question:
    grant = rng.choice(grants)
    edge = rng.choice([grant.va, grant.va + grant.length - 1, grant.va + grant.length, grant.va - 1])
    va = (edge + rng.choice([0, 0, 0, -8, 8, 1 << 21, 1 << 47, 1 << 60])) % (1 << 64)
    return Question(
        va,
        rng.choice([1, 2, 8, 64, 4096, 0x5000]),
        rng.choice(["READ", "WRITE", "ATOMIC"]),
        rng.choice([grant.token, grant.token, None, *TOKENS]),
        rng.choice([1, 1, 0]),
        rng.random() < 0.5,
        rng.choice([TID, TID, TID, TID, 63]),
    )


# -- on a machine -----------------------------------------------------------------------------------


class _Ram:
    """Guest memory for the model; what is not RAM cannot be read, as for the device."""

    def __init__(self, machine: QtestMachine) -> None:
        self._machine = machine

    def read(self, addr: int, length: int) -> bytes:
        """Exactly ``length`` bytes."""
        try:
            return self._machine.read_memory(addr, length)
        except QtestError:
            raise MemoryReadError(addr, length) from None


class _Qmp:
    def __init__(self, machine: QtestMachine) -> None:
        self._qmp = machine.qmp

    def command(self, name: str, **arguments: Any) -> Any:
        """One QMP command."""
        return self._qmp.command(name, **arguments)


def apply(machine: QtestMachine, recipe: Recipe) -> tuple[Bench, View]:
    """Reset the machine and make the image."""
    machine.reset()
    bench = Bench(machine)
    for grant in recipe.grants:
        bench.grant(
            grant.va,
            grant.length,
            grant.permission,
            token=grant.token,
            token2=grant.token2,
            e_bit=grant.e_bit,
        )
    # All places first: finding one may make tables, which a damage before it would mislead.
    for at, damage in [(_place(bench, damage), damage) for damage in recipe.damages]:
        machine.write_memory(at + 8 * damage.word, damage.value.to_bytes(8, "little"))
    return bench, device_view(_Qmp(machine), _Ram(machine))


def _place(bench: Bench, damage: Damage) -> int:
    if damage.place == "tecte":
        return bench.tect
    if damage.place == "tcte":
        return bench.tct + 64 * TID
    if damage.place == "matt":
        return bench.matt.entry(damage.va, damage.level)
    return bench.mapt.node(damage.va, damage.level)


def ask(bench: Bench, view: View, questions: Sequence[Question]) -> list[tuple[Question, str]]:
    """Each question with what differs between device and model, "" for nothing."""
    requests = [question.request(bench.eid) for question in questions]
    answers = bench.machine.qmp.qom_ask_many(
        PERIPHERAL.format("ummu0"),
        "translate-request",
        [request_text(r) for r in requests],
        "translate-result",
    )
    state = view.state
    return [
        (question, disagreement(resolve(view.memory, state, request), parse_answer(answer)))
        for question, request, answer in zip(questions, requests, answers, strict=True)
    ]


def first_finding(machine: QtestMachine, recipe: Recipe) -> Finding | None:
    """The first question of a recipe on which they differ."""
    bench, view = apply(machine, recipe)
    for question, text in ask(bench, view, recipe.questions):
        if text:
            return Finding(recipe, question, text)
    return None


def shrink(machine: QtestMachine, finding: Finding) -> Finding:
    """The same disagreement with as few grants and damages as possible, and one question."""
    best = replace(finding, recipe=replace(finding.recipe, questions=(finding.question,)))
    for name in ("damages", "grants"):
        for part in getattr(best.recipe, name):
            rest = tuple(one for one in getattr(best.recipe, name) if one is not part)
            smaller = first_finding(machine, replace(best.recipe, **{name: rest}))
            best = smaller or best
    return best


# -- files ------------------------------------------------------------------------------------------


def save(finding: Finding, path: Path) -> None:
    """Write a recipe as YAML."""

    def plain(rows: Sequence[Any]) -> list[dict[str, Any]]:
        return [dict(vars(row)) for row in rows]

    recipe = finding.recipe
    text = yaml.safe_dump(
        {
            "format": FORMAT,
            "what": finding.text,
            "grants": plain(recipe.grants),
            "damages": plain(recipe.damages),
            "questions": plain(recipe.questions),
        },
        sort_keys=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def load(path: Path) -> Recipe:
    """Read a recipe; a damaged file is one line."""
    try:
        data = yaml.safe_load(path.read_text())
        if data["format"] != FORMAT:
            raise UserError(f"{path}: format {data['format']}, this ummulab reads {FORMAT}")
        return Recipe(
            tuple(Grant(**row) for row in data["grants"]),
            tuple(Damage(**row) for row in data["damages"]),
            tuple(Question(**row) for row in data["questions"]),
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a recipe: {str(error).splitlines()[0]}") from None
