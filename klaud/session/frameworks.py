"""How a session is driven, by name: one predicate per question, and no framework's name anywhere else."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from klaud import errors
from klaud.session import drive, journal, mcp, process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klaud.session import model, sandbox

_ALIASES: dict[str, model.Framework] = {"pydantic_ai_otf_encode": "claude_sdk_otf_encode"}
_ENCODERS = frozenset({"claude_sdk_otf_encode"})
_WITH_MODEL = frozenset({"claude_sdk", "claude_sdk_otf_encode"})

CREDENTIALS = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
"""Variables with the model's key: an API key, or a subscription's token. klaud's proxy holds it, never the agent."""

SCRIPTED = Path(__file__).with_name("scripted")
"""The folder of the scripted agent's program."""


def canonical(name: model.Framework) -> model.Framework:
    """Return the framework that a name stands for (one legacy name is an alias; stored names are not rewritten)."""
    return _ALIASES.get(name, name)


def is_legacy(name: model.Framework) -> bool:
    """Tell whether the name is kept for old configurations only."""
    return name in _ALIASES


def is_encoder(name: model.Framework) -> bool:
    """Tell whether a session of this framework builds references instead of changing a family."""
    return canonical(name) in _ENCODERS


def needs_model(name: model.Framework) -> bool:
    """Tell whether a session of this framework talks to a model, thus needs a key and the metering proxy."""
    return canonical(name) in _WITH_MODEL


def missing_credential(name: model.Framework, environ: Mapping[str, str]) -> str:
    """Return in words which credential is missing before anything is made for the session; empty where none is."""
    if not needs_model(name) or any(environ.get(variable) for variable in CREDENTIALS):
        return ""
    return f"{name} needs exactly one of {' and '.join(CREDENTIALS)}, and neither is set"


def needs_sdk(name: model.Framework) -> bool:
    """Tell whether a session of this framework needs the extra ``agent``."""
    return canonical(name) in _WITH_MODEL


class Place(Protocol):
    """Where an agent works (``work.Work``): what it may write, and in it its tree and its home."""

    @property
    def agent_root(self) -> Path: ...  # noqa: D102 - see above
    @property
    def tree(self) -> Path: ...  # noqa: D102 - see above
    @property
    def home(self) -> Path: ...  # noqa: D102 - see above


@dataclasses.dataclass(frozen=True, slots=True)
class Ask:
    """What a framework needs to run one turn.

    ``listed`` gives klaud's tools with their schemas, ``own_tools`` the agent program's own ones that it may use.
    ``finals``: how many final runs earlier turns of the session have started.
    """

    sandbox: sandbox.Sandbox
    work: Place
    prompt: str
    tools: drive.Tools
    policy: model.Policy
    watch: Callable[[], model.Fault]
    log: Callable[[str], None]
    resume: str = ""
    spent_tokens: int = 0
    spent_microdollars: int = 0
    finals: int = 0
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    journal: journal.Journal = journal.SILENT
    listed: Callable[[], list[dict[str, Any]]] = mcp.listed
    own_tools: tuple[str, ...] = ("Bash", "Edit", "Glob", "Grep", "MultiEdit", "Read", "Write", "TodoWrite")


def run_turn(ask: Ask) -> model.TurnEnd:
    """Run one turn of the policy's framework; the agent's process tree is ended when this returns."""
    if needs_sdk(ask.policy.framework):
        try:
            from klaud.session import sdk  # noqa: PLC0415 - the extra may be missing
        except ImportError as error:
            message = f"framework {ask.policy.framework} needs claude-agent-sdk, which is not installed"
            raise errors.MissingToolError(
                message, advice="Install klaud with the extra agent: klaud[agent]."
            ) from error
        return sdk.run(ask)
    return drive.run(
        drive.Turn(
            start=scripted_start(ask.work, ask.policy),
            sandbox=ask.sandbox,
            prompt=ask.prompt,
            tools=ask.tools,
            policy=ask.policy,
            watch=ask.watch,
            log=ask.log,
            listed=ask.listed,
            journal=ask.journal,
        )
    )


def scripted_start(place: Place, policy: model.Policy) -> process.Start:
    """Return how the scripted agent is started in the session's work tree."""
    python = os.path.realpath(sys.executable)
    script = ("--script", str(Path(policy.script).resolve())) if policy.script else ()
    return process.Start(
        argv=(
            python,
            "-I",
            "-S",
            str(SCRIPTED),
            *script,
            "--output-format",
            "stream-json",
            "--input-format",
            "stream-json",
        ),
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(place.home),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
        },
        cwd=str(place.tree),
        read=tuple(dict.fromkeys([sys.base_prefix, str(SCRIPTED), *(script[1:])])),
        write=(str(place.agent_root),),
        home=str(place.home),
    )
