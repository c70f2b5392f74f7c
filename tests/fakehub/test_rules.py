"""Rulesets as the API tells of them; the fixture holds every answer to GitHub's own description."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.fakehub import scene, scene_text
from klaud.fakehub.state import Ruleset

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakehub.conftest import World

PATTERN = {"operator": "starts_with", "pattern": "team/"}


def test_active_rules_are_told_for_the_branches_that_they_cover(world: World) -> None:
    world.repository.rulesets += [
        Ruleset(1, "all", rules=[{"type": "required_signatures"}], exclude=["refs/heads/free/*"]),
        Ruleset(2, "main", include=["~DEFAULT_BRANCH"], rules=[{"type": "deletion"}]),
        Ruleset(3, "tried", enforcement="evaluate", rules=[{"type": "creation"}]),
        Ruleset(4, "tags", target="tag", rules=[{"type": "creation"}]),
        Ruleset(5, "names", rules=[{"type": "branch_name_pattern", "parameters": PATTERN}], bypass=True),
    ]
    told = {}
    for name in ("main", "free/x", "not/there/yet"):
        rows = world.call("GET", f"rules/branches/{name}").json()
        told[name] = [(row["type"], row["ruleset_id"]) for row in rows]
    names = ("branch_name_pattern", 5)
    assert told == {
        "main": [("required_signatures", 1), ("deletion", 2), names],
        "free/x": [names],
        "not/there/yet": [("required_signatures", 1), names],
    }
    assert [row["name"] for row in world.call("GET", "rulesets").json()] == ["all", "main", "tried", "tags", "names"]
    whole = world.call("GET", "rulesets/5").json()
    assert whole["rules"] == [{"type": "branch_name_pattern", "parameters": PATTERN}]
    assert whole["current_user_can_bypass"] == "always"
    assert world.call("GET", "rulesets/1").json()["current_user_can_bypass"] == "never"
    assert world.call("GET", "rulesets/99").status_code == 404


def test_a_scene_has_them(tmp_path: Path) -> None:
    given = {"name": "all", "target": "branch", "include": ["refs/heads/klaud/**"], "rules": [{"type": "creation"}]}
    with scene.build(scene.Scene({"scene": 1, "rulesets": [given]}), tmp_path) as hub:
        (made,) = hub.repository("acme/bench").rulesets
    assert (made.id, made.name, made.include, made.enforcement) == (1, "all", ["refs/heads/klaud/**"], "active")
    with pytest.raises(scene.SceneError, match="enforcment"):
        scene_text.read("scene: 1\nrulesets: [{name: all, enforcment: active, rules: []}]\n")
