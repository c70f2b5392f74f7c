"""Rulesets, as the API tells of them. They are told and not enforced: a push that a rule would refuse is a scene's fault."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from klaud.fakehub.call import Page, not_found
from klaud.fakehub.clock import stamp

if TYPE_CHECKING:
    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.state import Ruleset


def _covers(call: Call, ruleset: Ruleset, ref: str) -> bool:
    def named(patterns: list[str]) -> bool:
        default = f"refs/heads/{call.repo.default_branch}"
        return any(
            one == "~ALL" or (one == "~DEFAULT_BRANCH" and ref == default) or fnmatch.fnmatchcase(ref, one)
            for one in patterns
        )

    return named(ruleset.include) and not named(ruleset.exclude)


def branch_rules(call: Call) -> Any:
    """Answer the active rules that apply to a branch of that name, whether it exists or not."""
    ref = f"refs/heads/{call.params['branch']}"
    found = [
        {
            **rule,
            "ruleset_source_type": "Repository",
            "ruleset_source": call.repo.full_name,
            "ruleset_id": ruleset.id,
        }
        for ruleset in call.repo.rulesets
        if ruleset.target == "branch" and ruleset.enforcement == "active" and _covers(call, ruleset, ref)
        for rule in ruleset.rules
    ]
    return Page(found, lambda rule: rule)


def _row(call: Call, ruleset: Ruleset) -> dict[str, Any]:
    return {
        "id": ruleset.id,
        "name": ruleset.name,
        "target": ruleset.target,
        "source_type": "Repository",
        "source": call.repo.full_name,
        "enforcement": ruleset.enforcement,
        "created_at": stamp(call.repo.created_at),
        "updated_at": stamp(call.repo.created_at),
    }


def rulesets(call: Call) -> Any:
    """Answer the rulesets, without their rules."""
    return Page(call.repo.rulesets, lambda one: _row(call, one))


def ruleset(call: Call) -> Any:
    """Answer one ruleset with its rules, and whether the asker is above them."""
    for one in call.repo.rulesets:
        if str(one.id) == call.params["ruleset_id"]:
            conditions = {"ref_name": {"include": one.include, "exclude": one.exclude}}
            bypass = "always" if one.bypass else "never"
            return _row(call, one) | {
                "conditions": conditions, "rules": one.rules, "current_user_can_bypass": bypass,
            }  # fmt: skip
    raise not_found()


def add_routes(router: Router) -> None:
    """Add these routes to the table."""
    base = "/repos/{owner}/{repo}"
    router.route("GET", f"{base}/rules/branches/{{branch+}}", permission="metadata")(branch_rules)
    router.route("GET", f"{base}/rulesets", permission="metadata")(rulesets)
    router.route("GET", f"{base}/rulesets/{{ruleset_id}}", permission="metadata")(ruleset)
