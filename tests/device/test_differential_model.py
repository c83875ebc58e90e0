# SPDX-License-Identifier: GPL-2.0-or-later
"""Device and reference model on random recipes; saved findings; and that a difference would be found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ummulab.errors import UserError
from ummulab.fuzz import differential as d
from ummulab.qtest.bench import CANARY_VA
from ummulab.qtest.machine import QtestMachine

REGRESSIONS = sorted((Path(__file__).parents[1] / "regressions").glob("*.yaml"))


@pytest.mark.parametrize("seed", range(12))
def test_device_and_model_agree(module_machine: QtestMachine, seed: int) -> None:
    finding = d.first_finding(module_machine, d.random_recipe(f"default {seed}", 100))
    assert finding is None, finding


def test_recipes_reach_all_kinds_of_answers(module_machine: QtestMachine) -> None:
    """Questions that are all refused for one reason would compare little."""
    seen: set[tuple[str, str]] = set()
    for seed in range(12):
        recipe = d.random_recipe(f"kinds {seed}", 60)
        bench, view = d.apply(module_machine, recipe)
        assert view.probe is not None
        for question in recipe.questions:
            answer = view.probe(question.request(bench.eid))
            seen.add((answer.status, answer.event))
    events = {event for _, event in seen if event}
    assert len(events) >= 4, seen
    assert any(not event for _, event in seen)


def test_a_difference_is_found_and_shrunk(
    module_machine: QtestMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a model that takes any token: the finding shrinks to the one grant and one question it needs."""
    real = d.resolve

    def careless(memory, state, request):  # type: ignore[no-untyped-def]
        given = next((g.token for g in recipe.grants if g.va <= request.uba < g.va + g.length), None)
        return real(memory, state, replace(request, token=given))

    grant = d.Grant(CANARY_VA, 0x1000, 7, 5, None, 0)
    other = d.Grant(CANARY_VA + 0x100000, 0x1000, 7, None, None, 0)
    good = d.Question(CANARY_VA, 8, "READ", 5, 1, True)
    recipe = d.Recipe(
        (other, grant), (), (good, replace(good, token=6), replace(good, va=CANARY_VA + 0x100000))
    )
    monkeypatch.setattr(d, "resolve", careless)
    finding = d.first_finding(module_machine, recipe)
    assert finding is not None and finding.question.token == 6
    small = d.shrink(module_machine, finding)
    assert small.recipe == d.Recipe((grant,), (), (replace(good, token=6),))


def test_recipe_survives_its_file(tmp_path: Path) -> None:
    recipe = d.random_recipe(3, 5)
    d.save(d.Finding(recipe, recipe.questions[0], "words"), tmp_path / "a.yaml")
    assert d.load(tmp_path / "a.yaml") == recipe


@pytest.mark.parametrize("text", ["", "[]", "format: 2", "format: 1", "{", "format: 1\ngrants: [{}]"])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=r"bad\.yaml: "):
        d.load(tmp_path / "bad.yaml")


def test_saved_findings_stay_fixed(module_machine: QtestMachine) -> None:
    for path in REGRESSIONS:
        finding = d.first_finding(module_machine, d.load(path))
        assert finding is None, (path, finding)
