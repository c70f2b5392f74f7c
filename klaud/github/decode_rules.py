"""Rules of a repository for refs: text to records, strict in what klaud reads of them and lenient in what it does not."""

from __future__ import annotations

from typing import Any

import msgspec

from klaud import errors
from klaud.github import model


class _Rule(msgspec.Struct):
    type: str
    ruleset_id: int = 0
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class _Ruleset(msgspec.Struct):
    id: int
    name: str
    enforcement: str
    target: str = "branch"
    current_user_can_bypass: str = "never"
    rules: list[_Rule] = msgspec.field(default_factory=list)


def branch_rules(body: str) -> tuple[model.Rule, ...]:
    """Decode ``GET /rules/branches/{branch}``."""
    return tuple(_rule(one) for one in _typed(body, list[_Rule]))


def rulesets(body: str) -> tuple[model.Ruleset, ...]:
    """Decode ``GET /rulesets``, which has no rules."""
    return tuple(_ruleset(one) for one in _typed(body, list[_Ruleset]))


def ruleset(body: str) -> model.Ruleset:
    """Decode ``GET /rulesets/{ruleset_id}``."""
    return _ruleset(_typed(body, _Ruleset))


def _rule(wire: _Rule) -> model.Rule:
    return model.Rule(type=wire.type, ruleset=wire.ruleset_id, parameters=wire.parameters)


def _ruleset(wire: _Ruleset) -> model.Ruleset:
    return model.Ruleset(
        id=wire.id,
        name=wire.name,
        target=wire.target,
        active=wire.enforcement == "active",
        bypassed=wire.current_user_can_bypass in {"always", "exempt"},
        rules=tuple(_rule(one) for one in wire.rules),
    )


def _typed(body: str, to: Any) -> Any:
    try:
        return msgspec.json.decode(body.encode(), type=to)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        message = f"GitHub's rules cannot be read: {str(error)[:200]}"
        raise errors.ReadFailedError(message) from None
