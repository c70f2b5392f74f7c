"""Reads workflow files: triggers and their filters, inputs, run names, concurrency, jobs.

Every scalar is read as text (YAML 1.1 would make ``on`` a truth value), and only what the hub acts on is read.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import yaml

from klaud.fakehub.expressions import filter_matches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_TYPES: Mapping[str, Sequence[str]] = {
    "pull_request": ("opened", "synchronize", "reopened"),
    "pull_request_target": ("opened", "synchronize", "reopened"),
}


class WorkflowFileError(ValueError):
    """A file that is no workflow. GitHub answers such a push with a run that fails at once; the hub ignores the file."""


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """One job of a workflow file. ``limit_minutes`` is None where the file gives none."""

    key: str
    name: str
    needs: tuple[str, ...] = ()
    condition: str | None = None
    limit_minutes: float | None = None
    environment: str | None = None


@dataclasses.dataclass(frozen=True)
class Input:
    """One input of ``workflow_dispatch``."""

    name: str
    required: bool
    default: str
    kind: str
    options: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class WorkflowFile:
    """What the hub reads of a workflow file. ``on`` maps an event to its filters."""

    path: str
    name: str
    on: Mapping[str, Mapping[str, Any]]
    run_name: str | None
    group: str | None
    cancel_in_progress: str
    jobs: Mapping[str, JobSpec]
    inputs: Mapping[str, Input]

    def ordered_jobs(self) -> list[JobSpec]:
        """Return the jobs so that each comes after those it needs."""
        done: list[JobSpec] = []
        left = dict(self.jobs)
        while left:
            ready = [key for key, job in left.items() if all(need not in left for need in job.needs)]
            if not ready:
                return done + list(left.values())
            done += [left.pop(key) for key in ready]
        return done

    def listens(
        self, event: str, *, action: str, branch: str | None, names: Sequence[str], paths: Sequence[str] | None
    ) -> bool:
        """Tell whether an event starts the workflow.

        ``branch``: what the branch filters judge (the base of a pull request, the branch of a push, the head of a run);
        ``names``: for ``workflow_run``, the name of the workflow that ran; ``paths``: the files that changed, None for any.
        """
        if event not in self.on:
            return False
        filters = self.on[event]
        types = texts(filters.get("types")) or list(DEFAULT_TYPES.get(event, ()))
        if types and action not in types:
            return False
        if event == "workflow_run" and not set(texts(filters.get("workflows"))) & set(names):
            return False
        if not _passes(filters, "branches", branch):
            return False
        if paths is None:
            return True
        wanted, ignored = texts(filters.get("paths")), texts(filters.get("paths-ignore"))
        if wanted and not any(filter_matches(wanted, path) for path in paths):
            return False
        return not (ignored and all(filter_matches(ignored, path) for path in paths))


def _passes(filters: Mapping[str, Any], word: str, name: str | None) -> bool:
    wanted, ignored = texts(filters.get(word)), texts(filters.get(f"{word}-ignore"))
    if name is None:
        return not wanted
    if wanted and not filter_matches(wanted, name):
        return False
    return not (ignored and filter_matches(ignored, name))


def texts(value: Any) -> list[str]:
    """Return a text, or a list of texts, as a list."""
    if value is None or value == "":
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def parse(path: str, text: str) -> WorkflowFile:
    """Read a workflow file."""
    try:
        data = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader makes texts, lists and mappings only
    except yaml.YAMLError as error:
        raise WorkflowFileError(f"{path}: {error}") from error
    if not isinstance(data, dict) or "on" not in data or not isinstance(data.get("jobs"), dict):
        raise WorkflowFileError(f"{path}: a workflow needs `on` and `jobs`")
    on = data["on"]
    if isinstance(on, dict):
        events = {str(event): _mapping(filters) for event, filters in on.items()}
    else:
        events = {event: {} for event in texts(on)}
    concurrency = data.get("concurrency")
    group = concurrency if isinstance(concurrency, str) else _mapping(concurrency).get("group")
    jobs = {}
    for key, raw in data["jobs"].items():
        job = _mapping(raw)
        limit = job.get("timeout-minutes")
        environment = job.get("environment")
        jobs[key] = JobSpec(
            key=key,
            name=job.get("name") or key,
            needs=tuple(texts(job.get("needs"))),
            condition=job.get("if"),
            limit_minutes=float(limit) if limit and "${{" not in limit else None,
            environment=environment if isinstance(environment, str) else _mapping(environment).get("name"),
        )
    return WorkflowFile(
        path=path,
        name=data.get("name") or path,
        on=events,
        run_name=data.get("run-name"),
        group=group or None,
        cancel_in_progress=str(_mapping(concurrency).get("cancel-in-progress", "false")),
        jobs=jobs,
        inputs={
            name: Input(
                name=name,
                required=_mapping(raw).get("required") == "true",
                default=_mapping(raw).get("default") or "",
                kind=_mapping(raw).get("type") or "string",
                options=tuple(texts(_mapping(raw).get("options"))),
            )
            for name, raw in _mapping(events.get("workflow_dispatch", {}).get("inputs")).items()
        },
    )
