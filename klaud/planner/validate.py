"""Does the configuration fit the repository? Every finding at once, each with its place and what to do.

Looks at the files of a work tree only (``klaud validate``); the network is not asked and nothing is run. Errors are what
would make a wave fail or do the wrong thing; warnings are what probably is a mistake.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from klaud import errors, yaml12
from klaud.encoder import model as encoding
from klaud.encoder import request
from klaud.planner import tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from klaud.planner import settings
    from klaud.session import model as session

CREDENTIALS = re.compile(
    r"(?:.*_|)(?:TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|PRIVATE_KEY|RECORD_KEY|CAPACITY_KEY|CREDENTIALS)(?:_ID|)"
)
"""Names of environment variables that hold a credential; generators are code of the repository and get none of them."""

CANDIDATE_INPUTS = ("wave", "candidate", "claim")
"""What the planner hands to the candidate workflow."""

FILES = 500_000
"""Most files of a work tree that are looked at: more is not a checkout."""

WORKFLOW_BYTES = 1_048_576
"""Most bytes of a workflow file; GitHub's own limit is half of that."""


Check: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Look at a workflow's triggers; return what is wrong with them, or nothing."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong: where in the configuration, what, and how to correct it."""

    level: Literal["error", "warning"]
    place: str
    what: str
    fix: str


def findings(
    benchmarks: Sequence[settings.Benchmark],
    renames: Mapping[str, str],
    candidate_workflow: str,
    root: Path,
    *,
    references: Sequence[settings.References] = (),
    encoder: encoding.Policy | None = None,
) -> tuple[Finding, ...]:
    """Return everything that does not fit between the configuration and the work tree at ``root``.

    ``encoder``: what bounds the builds of ``references``.
    """
    files = _Files(root)
    found = list(_workflow(files, "candidate-workflow", candidate_workflow, _takes(CANDIDATE_INPUTS)))
    for old, new in renames.items():
        if new not in files.paths:
            found.append(_error(f"renames.{old}", f"{new} does not exist", "name the file's present path"))
    for index, one in enumerate(benchmarks):
        found += _benchmark(files, f"benchmarks[{index}]", one)
    for index, entry in enumerate(references):
        found += _references(files, f"references[{index}]", entry, encoder or encoding.Policy())
    return tuple(found)


def credentials(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of variables that hold a credential."""
    return tuple(sorted(name for name, value in environment.items() if value and CREDENTIALS.fullmatch(name)))


class _Files:
    """The files of a work tree, below ``root``, without git's own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths: set[str] = set()
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name != ".git"]
            base = os.path.relpath(folder, root)
            paths |= {name if base == "." else f"{base}/{name}" for name in names}
            if len(paths) > FILES:
                message = f"{root} has more than {FILES} files"
                raise errors.InputError(message, advice="Run klaud validate in the repository's root.")
        self.paths = frozenset(paths)

    def any(self, pattern: str) -> bool:
        """Tell whether a glob matches a file, or names a folder that has one."""
        expression = tree.glob(pattern.removesuffix("/"))
        below = tree.glob(pattern.removesuffix("/") + "/**")
        return any(expression.fullmatch(path) or below.fullmatch(path) for path in self.paths)

    def load(self, path: str, limit: int) -> Any:
        """Return a YAML file's data; InputError where it cannot be read."""
        try:
            raw = (self.root / path).read_bytes()
        except OSError as error:
            message = f"{path}: {error.strerror}"
            raise errors.InputError(message) from None
        return yaml12.load(raw, where=path, limit=limit)


def _error(place: str, what: str, fix: str) -> Finding:
    return Finding("error", place, what, fix)


def _benchmark(files: _Files, at: str, one: settings.Benchmark) -> Iterable[Finding]:
    yield from _families(files, at, one)
    yield from _generator(files, at, one)
    yield from _sources(files, at, one)
    flows = one.workflows
    if flows.smoke:
        yield from _workflow(files, f"{at}.workflows.smoke", flows.smoke, _takes(flows.smoke_inputs))
    yield from _workflow(files, f"{at}.workflows.final", flows.final, _labelled)
    if one.edit_scope is None:
        fix = "name the values that an agent may change: edit-scope: {values: [{files: [...], keys: [...]}]}"
        yield _error(f"{at}.edit-scope", "there is none, and a session may not change just anything", fix)
    else:
        yield from _scope(files, f"{at}.edit-scope", one.edit_scope)


def _references(files: _Files, at: str, one: settings.References, policy: encoding.Policy) -> Iterable[Finding]:
    asked = {"database": "any", **one.options}
    try:
        request.check(request.of_change(one.name, asked, program=one.program), policy)
    except errors.InputError as error:
        yield _error(f"{at}.options", str(error), error.advice)
    if not any(re.fullmatch(rf"{re.escape(one.data)}/([^/]+)/\1_kb\.jsonl", path) for path in files.paths):
        fix = "put each database's inputs into a folder of its own, or correct data"
        yield _error(f"{at}.data", f"no database below {one.data!r} has a knowledge base", fix)
    for index, source in enumerate(one.sources):
        if source.file and source.file not in files.paths:
            yield _error(f"{at}.sources[{index}].file", f"{source.file} does not exist", "correct the path")
    if one.workflows.smoke:
        text = "a candidate that encodes has no smoke run"
        yield Finding("warning", f"{at}.workflows.smoke", text, "take it out")
    yield from _workflow(files, f"{at}.workflows.final", one.workflows.final, _labelled)


def _families(files: _Files, at: str, one: settings.Benchmark) -> Iterable[Finding]:
    for index, pattern in enumerate(one.families.files):
        expression = tree.glob(pattern)
        paths = [path for path in files.paths if expression.fullmatch(path)]
        place = f"{at}.families.files[{index}]"
        if not paths:
            yield _error(place, f"{pattern!r} matches no file", "correct the glob (* does not cross /)")
        for path in sorted(paths):
            try:
                data = files.load(path, tree.FILE_BYTES)
            except errors.InputError as error:
                yield _error(place, str(error), "correct the file")
                continue
            if not isinstance(data, dict) or not data:
                yield _error(place, f"{path} has no top-level keys, thus no families", "correct the file or the glob")


def _generator(files: _Files, at: str, one: settings.Benchmark) -> Iterable[Finding]:
    fitting = [layout for layout in one.generator.layouts if all(files.any(when) for when in layout.when)]
    place = f"{at}.generator.layouts"
    if not fitting:
        yield _error(place, "no layout fits the present files (see its when)", "add a layout for the present commit")
        return
    layout = fitting[0]
    number = one.generator.layouts.index(layout)
    place = f"{place}[{number}]"
    if not layout.commands:
        yield _error(f"{place}.commands", "there is none", "give the generator's command line")
    for kind in ("inputs", "configs"):
        for pattern in getattr(layout, kind):
            if not files.any(pattern):
                yield _error(f"{place}.{kind}", f"{pattern!r} matches no file", "correct the path")
    for index, command in enumerate(layout.commands):
        yield from _command(files, f"{place}.commands[{index}]", command, layout.inputs)


def _command(files: _Files, place: str, command: Sequence[str], inputs: Sequence[str]) -> Iterable[Finding]:
    if not command:
        yield _error(place, "it is empty", "give the program and its arguments")
        return
    for word in command:
        path = word.removeprefix("{root}/")
        if path == word or "{" in path:
            continue
        if not files.any(path):
            yield _error(place, f"the generator's file {path} does not exist", "correct the path below {root}")
        elif not any(path == one.rstrip("/") or path.startswith(one.rstrip("/") + "/") for one in inputs) and not any(
            tree.glob(one).fullmatch(path) for one in inputs
        ):
            yield _error(place, f"{path} is not among the layout's inputs", "add it (or its folder) to inputs")
    if "{" not in command[0] and "/" not in command[0] and shutil.which(command[0]) is None:
        yield Finding("warning", place, f"the program {command[0]} is not on this machine's PATH", "install it")


def _sources(files: _Files, at: str, one: settings.Benchmark) -> Iterable[Finding]:
    for index, source in enumerate(one.sources):
        if source.file and source.file not in files.paths:
            yield _error(f"{at}.sources[{index}].file", f"{source.file} does not exist", "correct the path")
    if one.rows.file and one.rows.file not in files.paths:
        yield _error(f"{at}.rows.file", f"{one.rows.file} does not exist", "correct the path")


def _scope(files: _Files, place: str, scope: session.EditScope) -> Iterable[Finding]:
    if not scope.values and not scope.files:
        yield _error(place, "it allows nothing", "name values or files")
    for index, value in enumerate(scope.values):
        for pattern in value.files:
            if not files.any(pattern):
                yield _error(f"{place}.values[{index}].files", f"{pattern!r} matches no file", "correct the glob")
    for pattern in scope.files:
        if pattern.startswith(".github") or "CODEOWNERS" in pattern:
            text = f"{pattern!r} is never allowed, whatever stands here"
            yield Finding("warning", f"{place}.files", text, "take it out")


def _workflow(files: _Files, place: str, name: str, check: Check) -> Iterable[Finding]:
    path = f".github/workflows/{name}"
    if path not in files.paths:
        yield _error(place, f"{path} does not exist", "write it (klaud init does), or correct the name")
        return
    try:
        data = files.load(path, WORKFLOW_BYTES)
    except errors.InputError as error:
        yield _error(place, str(error), "correct the workflow file")
        return
    what = _triggers(data, check)
    if what:
        yield _error(place, f"{path} {what}", "change the workflow's on:")


def not_a_candidates(data: Any) -> str:
    """Return why a workflow file's content is none that the planner can start candidates by, empty where it is."""
    return _triggers(data, _takes(CANDIDATE_INPUTS))


def _triggers(data: Any, check: Check) -> str:
    """Return what is wrong with a workflow file's triggers, or nothing."""
    triggers = data.get("on") if isinstance(data, dict) else None
    if isinstance(triggers, str):
        triggers = {triggers: None}
    elif isinstance(triggers, list):
        triggers = dict.fromkeys(str(one) for one in triggers)
    return check(triggers) if isinstance(triggers, dict) else "has no on:"


def _inputs(triggers: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the inputs of ``workflow_dispatch``, None where the workflow has no such trigger."""
    if "workflow_dispatch" not in triggers:
        return None
    trigger = triggers["workflow_dispatch"]
    inputs = trigger.get("inputs") if isinstance(trigger, dict) else None
    return inputs if isinstance(inputs, dict) else {}


def _takes(given: Iterable[str]) -> Check:
    def check(triggers: Mapping[str, Any]) -> str:
        inputs = _inputs(triggers)
        if inputs is None:
            return "cannot be started by workflow_dispatch"
        unknown = sorted(set(given) - set(inputs))
        if unknown:
            return f"has no input {', '.join(unknown)}"
        needed = [
            name
            for name, body in inputs.items()
            if isinstance(body, dict) and body.get("required") is True and "default" not in body
        ]
        missing = sorted(set(needed) - set(given))
        return f"requires the input {', '.join(missing)}, which klaud does not give" if missing else ""

    return check


def _labelled(triggers: Mapping[str, Any]) -> str:
    for name in ("pull_request", "pull_request_target"):
        trigger = triggers.get(name)
        types = trigger.get("types") if isinstance(trigger, dict) else None
        if isinstance(types, str):
            types = [types]
        if isinstance(types, list) and "labeled" in types:
            return ""
    return "does not run on pull_request: types: [labeled]"
