"""What a person or a dispatch asks for, judged before anything is made: one validator for both.

``check`` is a function of texts. The command line hands it its options, the candidate workflow the ``change`` of its brief
(``from_change``); a wrong mode, a wrong query mode, an unknown framework, ``rebuild`` with a framework that reads
references: the same sentence from both, before a file, an upload or a run exists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from klaud import errors
from klaud.encoder import model, naming
from klaud.session import frameworks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud.session import model as sessions

DEFAULT_FRAMEWORK = "claude_sdk_otf_encode"
FRAMEWORKS = ("claude_sdk", "scripted", "claude_sdk_otf_encode", "pydantic_ai_otf_encode")
"""Every framework there is (see ``klaud.session.frameworks``)."""
DATABASES = 1000
"""Databases of one command."""

Authentication: TypeAlias = Literal["", "api-key", "subscription"]

_SPAN = re.compile(r"(?:(\d{1,3})h)?(?:(\d{1,4})m)?(?:(\d{1,6})s)?")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options as they were given. ``program``: for a framework without a model, the agent's command.

    ``model``: instead of the policy's.
    """

    benchmark: str
    databases: str
    dialect: str = "sqlite"
    framework: str = DEFAULT_FRAMEWORK
    rebuild: bool = False
    budget: str = ""
    mode: str = "a-interact"
    query_mode: str = "slayer"
    authentications: tuple[str, ...] = ()
    program: tuple[str, ...] = ()
    model: str = ""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. ``framework`` is the canonical name; ``warnings`` are for the person who asked."""

    keys: tuple[model.Key, ...]
    framework: str
    rebuild: bool
    authentication: Authentication
    program: tuple[str, ...]
    policy: model.Policy
    warnings: tuple[str, ...] = ()


def check(asked: Asked, policy: model.Policy) -> Checked:
    """Return what is to be done, or raise InputError with the first thing that is wrong. Makes nothing, reads nothing."""
    if asked.mode not in model.MODES:
        raise errors.InputError(f"mode {asked.mode[:40]!r} does not exist: {' and '.join(model.MODES)} do")
    if asked.query_mode not in model.QUERY_MODES:
        raise errors.InputError(
            f"query mode {asked.query_mode[:40]!r} reads no reference: {' and '.join(model.QUERY_MODES)} does"
        )
    if asked.framework not in FRAMEWORKS:
        raise errors.InputError(
            f"framework {asked.framework[:60]!r} does not exist: {', '.join(name for name in FRAMEWORKS)} do"
        )
    name = cast("sessions.Framework", asked.framework)
    warnings: tuple[str, ...] = ()
    if not encodes(asked.framework):
        what = "rebuilding would take the reference away from it" if asked.rebuild else "it has nothing to build"
        raise errors.InputError(f"framework {asked.framework} reads references and does not encode: {what}")
    if frameworks.is_legacy(name):
        warnings = (f"framework {name} is the old name of {frameworks.canonical(name)}, which runs",)
    if frameworks.needs_model(name) and asked.program:
        raise errors.InputError(f"framework {asked.framework} starts its own agent: a program is for another one")
    if not frameworks.needs_model(name) and not asked.program:
        raise errors.InputError(f"framework {asked.framework} needs the program that answers for the agent")
    if asked.model:
        policy = msgspec.structs.replace(policy, model=asked.model)
    return Checked(
        keys=keys(asked.benchmark, asked.databases, asked.dialect),
        framework=frameworks.canonical(name),
        rebuild=asked.rebuild,
        authentication=_authentication(asked, policy),
        program=asked.program,
        policy=msgspec.structs.replace(policy, budget_seconds=span(asked.budget)) if asked.budget else policy,
        warnings=warnings,
    )


def encodes(framework: str) -> bool:
    """Tell whether a framework builds references, so that its results are uploaded and merged; the others read them.

    One without a model is a deterministic program in an encoding agent's place.
    """
    if framework not in FRAMEWORKS:
        return False
    name = cast("sessions.Framework", framework)
    return frameworks.is_encoder(name) or not frameworks.needs_model(name)


def keys(benchmark: str, databases: str, dialect: str) -> tuple[model.Key, ...]:
    """Return the keys of comma-separated databases; InputError for none, one named twice, or a wrong name."""
    given = [part.strip() for part in databases.split(",") if part.strip()]
    if not given:
        raise errors.InputError("no database is named")
    if len(given) > DATABASES:
        raise errors.InputError(f"{len(given)} databases: more than {DATABASES}")
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise errors.InputError(f"database {twice[0][:64]} is named twice")
    return tuple(naming.key(benchmark, name, dialect) for name in given)


def _authentication(asked: Asked, policy: model.Policy) -> Authentication:
    if not frameworks.needs_model(cast("sessions.Framework", asked.framework)):
        return ""
    if not policy.model:
        raise errors.InputError(
            f"framework {asked.framework} needs a model, and none is named",
            advice="Name it: --model, or encoder.model or session.model in the configuration.",
        )
    if not policy.model.startswith("claude"):
        return ""
    given: Sequence[str] = asked.authentications
    if len(given) != 1 or given[0] not in ("api-key", "subscription"):
        problem = "both were given" if len(given) > 1 else "neither was given"
        raise errors.InputError(
            f"framework {asked.framework} with model {policy.model} needs one authentication, and {problem}",
            advice="Choose --api-key or --subscription-auth.",
        )
    return cast("Authentication", given[0])


def span(text: str) -> float:
    """Return the seconds of a span such as ``5h40m``, ``90m`` or ``30s``; InputError where it is none."""
    match = _SPAN.fullmatch(text)
    seconds = sum(int(part) * unit for part, unit in zip(match.groups("0"), (3600, 60, 1), strict=True)) if match else 0
    if not seconds:
        raise errors.InputError(f"budget {text[:40]!r} is not a span of time such as 5h40m or 90m")
    return float(seconds)


def from_brief(brief: sessions.Brief, *, program: tuple[str, ...] = ()) -> Asked:
    """Return what a candidate run is to encode; InputError where the brief is of another kind or family.

    ``program`` comes from the workflow or the configuration, never from a brief: it is a command that would be run. It
    is left out where the brief asks for a framework that starts its own agent.
    """
    if brief.kind != "encode":
        raise errors.InputError(f"candidate {brief.candidate} is of kind {brief.kind}, which encodes nothing")
    asked = of_change(brief.benchmark, brief.change, program=program)
    (key,) = keys(asked.benchmark, asked.databases, asked.dialect)
    family = naming.names(key).family
    if brief.family != family:
        raise errors.InputError(
            f"candidate {brief.candidate} is of family {brief.family[:120]!r}, and its change asks for {family}"
        )
    return asked


def of_change(benchmark: str, change: Mapping[str, Any], *, program: tuple[str, ...]) -> Asked:
    """Return what a candidate's change asks for, with the program where its framework does not start its own agent."""
    asked = from_change(benchmark, change)
    known = asked.framework in FRAMEWORKS
    if known and frameworks.needs_model(cast("sessions.Framework", asked.framework)):
        return asked
    return msgspec.structs.replace(asked, program=program)


def from_change(benchmark: str, change: Mapping[str, Any]) -> Asked:
    """Return what the brief of a candidate of kind ``encode`` asks for; InputError where it holds anything else.

    Its ``change`` has ``database`` and may have ``dialect``, ``framework``, ``rebuild``, ``budget``, ``mode``,
    ``query-mode`` and ``authentication``, named as the options of the command line are.
    """
    texts = ("database", "dialect", "framework", "budget", "mode", "query-mode", "authentication")
    unknown = sorted(set(change).difference(texts, {"rebuild"}))
    if unknown:
        raise errors.InputError(f"a candidate that encodes has no {unknown[0][:60]!r} in its change")
    for name in texts:
        if not isinstance(change.get(name, ""), str):
            raise errors.InputError(f"{name} of a candidate that encodes is not a text")
    rebuild = change.get("rebuild", False)
    if not isinstance(rebuild, bool):
        raise errors.InputError("rebuild of a candidate that encodes is neither true nor false")
    database = change.get("database", "")
    if "," in database:
        raise errors.InputError("a candidate that encodes is one database")
    authentication = change.get("authentication", "")
    return Asked(
        benchmark=benchmark,
        databases=database,
        dialect=change.get("dialect", "sqlite"),
        framework=change.get("framework", DEFAULT_FRAMEWORK),
        rebuild=rebuild,
        budget=change.get("budget", ""),
        mode=change.get("mode", "a-interact"),
        query_mode=change.get("query-mode", "slayer"),
        authentications=(authentication,) if authentication else (),
    )
