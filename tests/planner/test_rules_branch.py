"""Which rules of a repository refuse what klaud does with its branches."""

from __future__ import annotations

from typing import Any

import pytest

from klaud.github import decode_rules, model, rulesets
from klaud.planner import preflight, rules_branch

BRANCH, EMAIL = preflight.BRANCH, "90001+klaud-bot@users.noreply.github.com"


def refusal(kind: str, **parameters: Any) -> rules_branch.Refusal | None:
    return rules_branch.refusal(kind, parameters, branch=BRANCH, email=EMAIL)


@pytest.mark.parametrize("kind", sorted(rules_branch.REFUSING))
def test_each_rule_that_refuses_says_what_follows_and_only_deletion_lets_a_wave_begin(kind: str) -> None:
    found = refusal(kind)
    assert found is not None
    assert (found.certain, found.stops) == (True, kind != "deletion")
    assert "klaud/**" in found.fix


@pytest.mark.parametrize("kind", sorted(rules_branch.HARMLESS))
def test_a_harmless_rule_is_no_finding(kind: str) -> None:
    assert refusal(kind) is None


@pytest.mark.parametrize("kind", [*sorted(rules_branch.PUSH), "commit_message_pattern", "a_rule_of_next_year"])
def test_what_may_refuse_is_told_as_not_certain(kind: str) -> None:
    found = refusal(kind)
    assert found is not None
    assert (found.certain, found.stops) == (False, False)


@pytest.mark.parametrize(
    ("operator", "pattern", "fits"),
    [
        ("starts_with", "klaud/", True),
        ("starts_with", "team/", False),
        ("ends_with", "0", True),
        ("ends_with", "-main", False),
        ("contains", "auto", True),
        ("contains", "bot", False),
        ("regex", r"^klaud/auto-[0-9a-f]+", None),
        ("regex", r"^klaud/auto-.*", True),
        ("regex", r"^team/", False),
        ("regex", r"(a+)+$", None),
        ("regex", r"^[", None),
        ("regex", "*", None),
        ("looks_like", "klaud", None),
    ],
)
@pytest.mark.parametrize("negate", [False, True])
def test_a_pattern_is_held_to_what_klaud_will_write(
    operator: str, pattern: str, fits: bool | None, negate: bool
) -> None:
    found = refusal("branch_name_pattern", operator=operator, pattern=pattern, negate=negate)
    if fits is None:
        assert found is not None
        assert not found.certain
    elif fits != negate:
        assert found is None
    else:
        assert found is not None
        assert found.stops
        assert ("not " in found.what.partition("fit ")[2]) is negate


def test_an_e_mail_address_is_looked_at_too() -> None:
    assert refusal("commit_author_email_pattern", operator="ends_with", pattern="@users.noreply.github.com") is None
    assert refusal("committer_email_pattern", operator="ends_with", pattern="@acme.example") is not None


def held(*kinds: str, ruleset: model.Ruleset | None) -> tuple[rulesets.Held, ...]:
    return tuple(rulesets.Held(model.Rule(type=kind), ruleset) for kind in kinds)


def checks(found: tuple[rulesets.Held, ...] | str) -> list[tuple[str, bool, str]]:
    told = preflight.branch_rules(preflight.Rules(lambda _: found, EMAIL))
    return [(one.result, one.stops, one.what) for one in told]


def test_what_is_found_becomes_checks() -> None:
    mine = model.Ruleset(id=1, name="all", target="branch", active=True)
    above = model.Ruleset(id=2, name="all", target="branch", active=True, bypassed=True)
    assert [one[:2] for one in checks(held("creation", "deletion", "max_file_size", ruleset=mine))] == [
        ("wrong", True), ("wrong", False), ("unknown", False),
    ]  # fmt: skip
    assert [one[:2] for one in checks(held("creation", ruleset=above))] == [("ok", False), ("ok", False)]
    assert "a ruleset has the rule creation" in checks(held("creation", ruleset=None))[0][2]
    assert checks(())[0][2] == "no rule of the repository refuses klaud's branches"
    assert checks("this host does not tell its rules (HTTP 404)")[0][:2] == ("ok", False)


def test_rules_are_decoded_and_nonsense_is_refused() -> None:
    (rule,) = decode_rules.branch_rules('[{"type": "creation", "ruleset_id": 7, "ruleset_source": "acme/bench"}]')
    assert (rule.type, rule.ruleset, rule.parameters) == ("creation", 7, {})
    known = '"id": 7, "name": "x", "enforcement": "active", "current_user_can_bypass": "always"'
    whole = decode_rules.ruleset(f'{{{known}, "rules": [{{"type": "update"}}]}}')
    assert (whole.active, whole.bypassed, whole.rules[0].type, whole.target) == (True, True, "update", "branch")
    (short,) = decode_rules.rulesets('[{"id": 8, "name": "y", "enforcement": "evaluate", "target": "push"}]')
    assert (short.active, short.bypassed, short.target) == (False, False, "push")
    for text in ("", "[1]", '[{"ruleset_id": 7}]', "[" * 100_000):
        with pytest.raises(Exception, match="rules cannot be read"):
            decode_rules.branch_rules(text)
