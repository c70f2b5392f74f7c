"""``.github/klaud.yml`` -> one frozen ``Config`` that is made of each feature's own ``Policy``.

Strict: a key that nobody knows is an error that names its place and the nearest known key; so is a value of another type.
Everything has a default except the sources, the generator and the workflows to run. Keys are written with hyphens.
This module alone reads the configuration file and the environment; what it returns is plain frozen data.

It does not look at the repository: whether the files and workflows that are named exist is ``klaud validate``'s business.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import inspect

from klaud import errors, names, yaml12
from klaud.baselines import schema
from klaud.encoder import model as encoder_model
from klaud.planner import settings as planner_settings
from klaud.recovery import model as recovery_model
from klaud.review import model as review_model
from klaud.session import model as session_model

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

T = TypeVar("T")

PLACE = ".github/klaud.yml"
"""Where the configuration lies, relative to the repository."""
PAUSE_VARIABLE = "KLAUD_PAUSED"
"""The repository's variable that pauses everything."""

LIMIT_BYTES = 1_048_576
"""Most bytes of the configuration: a hundred benchmarks fit into a tenth of it."""

GITHUB_ACTIONS_BOT = 41_898_282
"""The account id of ``github-actions[bot]``, which is who GITHUB_TOKEN acts as."""

_WORKFLOW_FILE = r"^[A-Za-z0-9][A-Za-z0-9._-]*\.ya?ml$"


class Config(session_model.Section, frozen=True, kw_only=True):
    """The whole configuration."""

    bot: Annotated[int, msgspec.Meta(ge=1)] = GITHUB_ACTIONS_BOT
    """klaud's own account id; the default is github-actions[bot], which GITHUB_TOKEN acts as."""
    bot_login: str = ""
    """klaud's login, for the name in its commits; empty: github-actions[bot], or ``klaud`` where ``bot`` is another."""
    ignored_actors: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] = ()
    """Account ids of other bots whose comments and labels do not count as a person's touch."""
    refs_prefix: Annotated[str, msgspec.Meta(pattern=r"^refs/[a-z][a-z0-9-]*(/[a-z0-9][a-z0-9-]*)*$")] = (
        names.DEFAULT_PREFIX
    )
    """Where klaud keeps its state; change it where the host refuses the default."""
    refs_store: Literal["git", "graphql"] = "git"
    """How the planner and recovery speak to klaud's refs: by git's own protocol, or by GitHub's API where a push by git is
    refused; the API costs a request for each record read or written. Sessions push their work by git in any case."""
    paused: bool = False
    """True: every verb that writes stops with a message; observation goes on."""
    candidate_workflow: Annotated[str, msgspec.Meta(pattern=_WORKFLOW_FILE)] = "klaud-candidate.yml"
    """File name of the workflow that runs one session."""
    planner: planner_settings.Policy = planner_settings.Policy()
    """What a wave may start and spend."""
    recovery: recovery_model.Policy = recovery_model.Policy()
    """What one sweep may do, how long it waits, and what counts as a leak."""
    session: session_model.Policy = session_model.Policy()
    """How a session is driven and what bounds it."""
    review: review_model.Policy = review_model.Policy()
    """Who decides whether an open pull request already does what a candidate would do."""
    renames: dict[str, str] = msgspec.field(default_factory=dict)
    """Moved configuration files, old path -> new path, for every benchmark: a family's identity is its file and key."""
    encoder: encoder_model.Policy = encoder_model.Policy()
    """What bounds the build of a reference, and which model encodes."""
    benchmarks: tuple[planner_settings.Benchmark, ...] = ()
    """The benchmark matrices of this repository."""
    references: tuple[planner_settings.References, ...] = ()
    """The benchmarks of databases whose knowledge is encoded into references. One of the two lists has an entry."""

    def __post_init__(self) -> None:
        """Refuse what single values cannot show: equal names, a prefix among branches or tags."""
        seen: set[str] = set()
        if not self.benchmarks and not self.references:
            message = "benchmarks is missing (and so is references): at least one entry is needed"
            raise ValueError(message)
        for name in (*(one.name for one in self.benchmarks), *(one.name for one in self.references)):
            if name in seen:
                message = f"two benchmarks are named {name!r}"
                raise ValueError(message)
            seen.add(name)
        if self.refs_prefix.split("/")[1] in {"heads", "tags", "pull", "remotes", "notes"}:
            message = f"refs-prefix {self.refs_prefix!r} is among branches, tags or the host's own refs"
            raise ValueError(message)

    def identity(self) -> tuple[str, str]:
        """Return name and e-mail address of klaud's commits: GitHub knows the account by the id in the address."""
        login = self.bot_login or ("github-actions[bot]" if self.bot == GITHUB_ACTIONS_BOT else "klaud")
        return login, f"{self.bot}+{login}@users.noreply.github.com"

    def reference(self, name: str) -> planner_settings.References | None:
        """Return the entry of ``references:`` of that name, None where there is none."""
        return next((one for one in self.references if one.name == name), None)

    def flows(self) -> tuple[session_model.Workflows, ...]:
        """Return the workflows of every benchmark and of every entry of ``references:``."""
        return (*(one.workflows for one in self.benchmarks), *(one.workflows for one in self.references))

    def encoding(self) -> encoder_model.Policy:
        """Return what bounds a build; its model is the session's where the section names none."""
        if self.encoder.model or not self.session.model:
            return self.encoder
        return msgspec.structs.replace(self.encoder, model=self.session.model)

    def benchmark(self, name: str) -> planner_settings.Benchmark:
        """Return the benchmark of that name; InputError names those there are."""
        for benchmark in self.benchmarks:
            if benchmark.name == name:
                return benchmark
        known = ", ".join(one.name for one in self.benchmarks) or "none"
        message = f"benchmark {name!r} is not in the configuration (it has: {known})"
        raise errors.InputError(message)


def load(path: Path) -> Config:
    """Return the configuration in the file ``path`` (``<repository>/.github/klaud.yml``).

    InputError when it is not there (with what to do), cannot be read, or is wrong.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT_BYTES + 1)
    except FileNotFoundError:
        message = f"there is no configuration at {path}"
        raise errors.InputError(
            message,
            advice="Run klaud init to write a commented starting file, or run klaud in the repository's root.",
        ) from None
    except OSError as error:
        message = f"the configuration {path} cannot be read: {error.strerror}"
        raise errors.InputError(message) from None
    return parse(raw, where=path.name)


def parse(raw: bytes, *, where: str = PLACE) -> Config:
    """Return the configuration in ``raw`` (YAML, UTF-8); InputError names the place of whatever is wrong."""
    data = yaml12.load(raw, where=where, limit=LIMIT_BYTES)
    if data is None:
        message = f"{where}: the file is empty"
        raise errors.InputError(message, advice="Run klaud init to write a commented starting file.")
    config = convert(data, Config, where=where)
    _check_documents(config, where)
    return msgspec.structs.replace(
        config,
        benchmarks=tuple(
            msgspec.structs.replace(one, renames={**config.renames, **one.renames}) for one in config.benchmarks
        ),
    )


def _check_documents(config: Config, where: str) -> None:
    """Refuse what is empty where something must be, and generators and identities that contradict themselves."""
    for index, one in enumerate(config.benchmarks):
        at = f"{where}: benchmarks[{index}]"
        if not one.generator.layouts:
            message = f"{at}.generator.layouts: at least one layout is needed"
            raise errors.InputError(message)
        if bool(one.rows.feed) == bool(one.rows.file):
            message = f"{at}.rows: exactly one of feed and file is needed"
            raise errors.InputError(message)
        try:
            schema.plan(one)
        except errors.InputError as error:
            message = f"{at}: {error}"
            raise errors.InputError(message, advice=error.advice) from None


def says_pause(value: str) -> bool:
    """Tell whether a value of ``KLAUD_PAUSED`` pauses klaud: any but an empty one, ``0``, ``false`` and ``no``."""
    return value.strip().lower() not in {"", "0", "false", "no"}


def is_paused(config: Config, environment: Mapping[str, str]) -> str | None:
    """Return why klaud is paused, in words, or None. ``KLAUD_PAUSED`` counts unless empty, ``0`` or ``false``."""
    if says_pause(environment.get(PAUSE_VARIABLE, "")):
        return f"the variable {PAUSE_VARIABLE} is set"
    if config.paused:
        return f"paused: true in {PLACE}"
    return None


def convert(data: Any, to: type[T], *, where: str) -> T:
    """Return ``data`` as ``to``, strictly; InputError with the path of the first thing that is wrong."""
    translated = _translate(inspect.type_info(to), data, "", where)
    try:
        return msgspec.convert(translated, to, strict=True)
    except msgspec.ValidationError as error:
        message = f"{where}: {_words(str(error))}"
        raise errors.InputError(message) from None


def _translate(info: inspect.Type, data: Any, path: str, where: str) -> Any:
    """Check the keys of every mapping that has known ones, and turn them into the names that msgspec knows."""
    if isinstance(info, inspect.Metadata):
        return _translate(info.type, data, path, where)
    if isinstance(info, inspect.StructType) and isinstance(data, dict):
        return _translate_struct(info, data, path, where)
    if isinstance(info, inspect.DictType) and isinstance(data, dict):
        for key in data:
            if not isinstance(key, str):
                message = f"{where}: {path or 'the file'}: key {key!r} is not a text (write it in quotes)"
                raise errors.InputError(message)
        return {key: _translate(info.value_type, value, _join(path, key), where) for key, value in data.items()}
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)) and isinstance(data, list):
        return [_translate(info.item_type, value, f"{path}[{index}]", where) for index, value in enumerate(data)]
    if isinstance(info, inspect.LiteralType) and data not in info.values:
        known = [str(value) for value in info.values]
        near = difflib.get_close_matches(str(data), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        message = f"{where}: {path}: {data!r} is not one of its words; {hint}"
        raise errors.InputError(message)
    if isinstance(info, inspect.StrType) and not isinstance(data, str):
        message = f"{where}: {path}: expected a text, got {_KINDS.get(_kind(data), _kind(data))}"
        raise errors.InputError(message)
    if isinstance(info, inspect.UnionType) and isinstance(data, (dict, list)):
        wanted = (
            (inspect.StructType, inspect.DictType)
            if isinstance(data, dict)
            else (inspect.ListType, inspect.VarTupleType)
        )
        fitting = [one for one in info.types if isinstance(one, wanted)]
        if len(fitting) == 1:
            return _translate(fitting[0], data, path, where)
    return data


def _translate_struct(info: inspect.StructType, data: dict[Any, Any], path: str, where: str) -> dict[str, Any]:
    fields = {field.name.replace("_", "-"): field for field in info.fields}
    result = {}
    for key, value in data.items():
        if key not in fields:
            near = difflib.get_close_matches(str(key), list(fields), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else ""
            if not difflib.get_close_matches(str(key), near, cutoff=0.75):
                # what is merely alike ("version" and "session") would lead a newcomer astray: all are told then
                hint += f"{' ' if hint else ''}known here: {', '.join(fields)}"
            message = f"{where}: {_join(path, str(key))}: unknown key; {hint}"
            raise errors.InputError(message)
        result[fields[key].encode_name] = _translate(fields[key].type, value, _join(path, key), where)
    for key, field in fields.items():
        if field.required and key not in data:
            message = f"{where}: {_join(path, key)} is missing"
            raise errors.InputError(message)
    return result


def _join(path: str, key: str) -> str:
    plain = re.fullmatch(r"[A-Za-z0-9_-]+", key)
    step = key if plain else f"[{key!r}]"
    return f"{path}.{step}" if path and plain else f"{path}{step}"


_KINDS = {
    "array": "a list", "object": "a mapping", "str": "a text", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "nothing",
}  # fmt: skip


def _kind(data: Any) -> str:
    return {list: "array", dict: "object", type(None): "null"}.get(type(data), type(data).__name__)


def _words(text: str) -> str:
    """Turn msgspec's message into one with the path first and YAML's words for types."""
    match = re.fullmatch(r"(.*?)(?: - at `\$?(.*)`)?", text, flags=re.DOTALL)
    what, path = (match[1], match[2]) if match else (text, None)
    for kind, word in _KINDS.items():
        what = re.sub(rf"`((?:[a-z]+ \| )*){kind}((?: \| [a-z]+)*)`", lambda m, w=word: f"`{m[1]}{w}{m[2]}`", what)
    return f"{path.lstrip('.')}: {what}" if path else what
