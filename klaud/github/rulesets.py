"""Read which rules of the repository hold for a ref. GitHub tells whoever may read the repository, of active rules only.

Branch protection of the older kind is not among them: only an administrator's token may read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from klaud import errors, names
from klaud.github import decode_rules, model

if TYPE_CHECKING:
    from klaud.github import rest
    from klaud.github.sender import Answer


class Held(msgspec.Struct, frozen=True):
    """One rule that holds for a branch, and the ruleset that it is part of (None: it could not be read)."""

    rule: model.Rule
    ruleset: model.Ruleset | None


def of_branch(gateway: rest.RestGateway, branch: str) -> tuple[Held, ...] | str:
    """Return the rules for a branch of that name, whether it exists or not; why they cannot be told otherwise."""
    path = "/".join(names.path_segment(part) for part in branch.split("/"))
    answer = _ask(gateway, "/rules/branches/{branch}", f"/rules/branches/{path}?per_page=100")
    if isinstance(answer, str):
        return answer
    found = decode_rules.branch_rules(answer.body)
    sets = {number: ruleset(gateway, number) for number in sorted({one.ruleset for one in found if one.ruleset})}
    return tuple(Held(one, sets.get(one.ruleset)) for one in found)


def ruleset(gateway: rest.RestGateway, number: int) -> model.Ruleset | None:
    """Return one ruleset with its rules, None where it cannot be read."""
    answer = _ask(gateway, "/rulesets/{ruleset_id}", f"/rulesets/{number}?includes_parents=true")
    return None if isinstance(answer, str) else decode_rules.ruleset(answer.body)


def every(gateway: rest.RestGateway) -> tuple[model.Ruleset, ...] | str:
    """Return the repository's rulesets (at most 100), without their rules; why they cannot be told otherwise."""
    answer = _ask(gateway, "/rulesets", "/rulesets?includes_parents=true&per_page=100")
    return answer if isinstance(answer, str) else decode_rules.rulesets(answer.body)


def _ask(gateway: rest.RestGateway, template: str, path: str) -> Answer | str:
    try:
        answer = gateway.ask(template, path, accept=(404,))
    except errors.ForbiddenError as error:
        return f"GitHub does not tell its rules: {error}"
    return answer if answer.status == 200 else f"this host does not tell its rules (HTTP {answer.status})"
