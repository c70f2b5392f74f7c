"""One item's session: up to four attempts, each checked after its process tree is gone.

An attempt gets a fresh workspace and a fresh nonce, so that nothing left over from an earlier one can count. Later
attempts are told the failed checks and nothing else about how the earlier went. What passes stays in the documents; what
does not is purged by its tag before the next attempt, so a failed item leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING

import msgspec

from klaud import errors
from klaud.encoder import agents, codec, decide, documents, files, model, naming, slayer, tools

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from klaud.clock import Clock


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of an item: its row (None: the budget ended first), accepted definitions, documents, usage."""

    row: model.Row | None
    definitions: tuple[model.Definition, ...]
    held: documents.Documents
    usage: model.Usage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every item of one build shares.

    ``deadline`` is the budget's end on the monotonic clock. ``forbidden``: paths and credentials that may be in no text.
    """

    inputs: model.Inputs
    layer: slayer.Layer
    agent: agents.ItemAgent
    policy: model.Policy
    clock: Clock
    folder: Path
    deadline: float
    forbidden: tuple[str, ...] = ()


async def encode(
    bench: Bench,
    item: model.Item,
    held: documents.Documents,
    accepted: Mapping[int, tuple[model.Definition, ...]],
) -> Settled:
    """Encode one item. ``held``: the documents so far, as the layer normalised them; ``accepted``: by encoded item."""
    settled = await _attempts(bench, item, held, accepted)
    if settled.row is None:
        return settled
    row = settled.row
    clean = msgspec.structs.replace(row, notes=_scrub(row.notes, bench), error=_scrub(row.error, bench))
    return dataclasses.replace(settled, row=clean)


def _scrub(text: str, bench: Bench) -> str:
    """Return ``text`` without paths of this machine and credentials: messages of drivers and agents may hold them."""
    for part in bench.forbidden:
        text = text.replace(part, "***")
    return text


async def _attempts(
    bench: Bench,
    item: model.Item,
    held: documents.Documents,
    accepted: Mapping[int, tuple[model.Definition, ...]],
) -> Settled:
    policy = bench.policy
    usage = model.Usage()
    problems: tuple[model.Problem, ...] = ()
    previous: tuple[model.Definition, ...] = ()
    result = model.ItemResult(ended="failed")
    for attempt in range(1, policy.attempts + 1):
        left = bench.deadline - bench.clock.monotonic()
        if left <= 0:
            return Settled(row=None, definitions=(), held=held, usage=usage)
        usage += model.Usage(sessions=int(attempt == 1))
        task = _task(bench, item, held, accepted, attempt=attempt, failed=problems, previous=previous)
        workspace = bench.folder / f"{item.id}.{attempt}"
        _prepare(workspace, task)
        desk = _desk(bench, task, item, held)
        bounds = model.Bounds(
            entry_seconds=min(policy.entry_seconds, left),
            attempt_seconds=min(policy.attempt_seconds, left),
            teardown_seconds=policy.teardown_seconds,
            turns=policy.turns,
            nudge_after=policy.nudge_after,
        )
        result = await bench.agent.run(task, workspace, desk, bounds)
        usage += result.usage + model.Usage(attempts=1, tool_calls=desk.calls)
        if result.ended == "never-ran":
            raise errors.MissingToolError(
                f"the agent never ran: {result.detail}",
                advice="Make the agent's program and its login work; what was settled before is kept as partial.",
            )
        if result.ended in ("timeout", "entry-timeout"):
            if bench.clock.monotonic() >= bench.deadline:
                return Settled(row=None, definitions=(), held=held, usage=usage)
            return Settled(row=decide.failed_row(item.id, (), result, policy), definitions=(), held=held, usage=usage)
        submission = _submission(desk, workspace, task, policy, result)
        if isinstance(submission, model.Problem):
            problems = (submission,)
            continue
        previous = submission.definitions
        problems, after = await _check(bench, item, held, accepted, submission)
        if problems:
            held = await _take_back(bench, item, after, held)
            continue
        result = model.ItemResult(ended="finished")
        if submission.status == "deferred":
            notes = " ".join(submission.notes.split())[: policy.note_characters]
            row = model.Row(kb_id=item.id, status="deferred", notes=notes)
            return Settled(row=row, definitions=(), held=held, usage=usage)
        row = model.Row(
            kb_id=item.id,
            status="encoded",
            entities=submission.entities,
            notes=" ".join(submission.notes.split())[: policy.note_characters],
        )
        return Settled(row=row, definitions=submission.definitions, held=after, usage=usage)
    return Settled(row=decide.failed_row(item.id, problems, result, policy), definitions=(), held=held, usage=usage)


def _task(
    bench: Bench,
    item: model.Item,
    held: documents.Documents,
    accepted: Mapping[int, tuple[model.Definition, ...]],
    *,
    attempt: int,
    failed: tuple[model.Problem, ...],
    previous: tuple[model.Definition, ...],
) -> model.Task:
    key = bench.inputs.key
    names = {one.id: one.knowledge for one in bench.inputs.items}
    return model.Task(
        nonce=secrets.token_hex(16),
        attempt=attempt,
        benchmark=key.benchmark,
        database=key.database,
        dialect=key.dialect,
        item=item,
        dependencies={
            str(child): model.Dependency(
                knowledge=names[child],
                entities=tuple(naming.canonical(key.database, one) for one in accepted.get(child, ())),
            )
            for child in item.children
        },
        models=documents.summaries(held),
        failed=failed,
        previous=previous,
    )


def _prepare(workspace: Path, task: model.Task) -> None:
    workspace.mkdir(parents=True)
    (workspace / agents.TASK).write_bytes(codec.encode(task))


def _desk(bench: Bench, task: model.Task, item: model.Item, held: documents.Documents) -> tools.Desk:
    async def trial(definitions: tuple[model.Definition, ...]) -> tuple[model.Problem, ...]:
        problems, after = await _apply(bench, item, held, definitions)
        await _take_back(bench, item, after, held)
        return problems

    return tools.Desk(task=task, layer=bench.layer, held=held, policy=bench.policy, trial=trial)


def _submission(
    desk: tools.Desk, workspace: Path, task: model.Task, policy: model.Policy, result: model.ItemResult
) -> model.Submission | model.Problem:
    """Return what the ended attempt submitted, or the failed check ``submitted``."""
    if result.ended not in ("finished", "turn-limit"):
        return model.Problem(check="submitted", text=f"the attempt ended as {result.ended}: nothing of it counts")
    if desk.submission is not None:
        return desk.submission
    try:
        data = files.read(workspace / agents.SUBMISSION, policy.submission_bytes)
    except FileNotFoundError:
        return model.Problem(check="submitted", text="the attempt ended without a submission")
    except Exception:  # noqa: BLE001 - a link, a device, a directory: all the same no submission
        return model.Problem(check="submitted", text="the submission is not a regular file that can be read")
    submission = codec.decode_submission(data, policy.submission_bytes)
    if isinstance(submission, model.Submission) and submission.nonce != task.nonce:
        return model.Problem(check="submitted", text="the submission is stale: it carries another attempt's nonce")
    return submission


async def _check(
    bench: Bench,
    item: model.Item,
    held: documents.Documents,
    accepted: Mapping[int, tuple[model.Definition, ...]],
    submission: model.Submission,
) -> tuple[tuple[model.Problem, ...], documents.Documents]:
    """Return every failed check of a submission, and the documents with its definitions."""
    database = bench.inputs.key.database
    problems = decide.check_submission(
        submission,
        item=item,
        database=database,
        dependencies={child: accepted[child] for child in item.children if child in accepted},
        policy=bench.policy,
    )
    said = msgspec.json.encode(submission.definitions).decode()
    if any(part in said for part in bench.forbidden):
        text = "a definition holds an absolute path of this machine, or a credential"
        problems = (*problems, model.Problem(check="within-limits", text=text))
    if submission.status == "deferred" or any(one.check == "within-limits" for one in problems):
        return problems, held
    applied, after = await _apply(bench, item, held, submission.definitions)
    overlay, _ = documents.apply(held, item.id, database, submission.definitions)
    named = decide.check_entities(submission.entities, item=item.id, database=database, held=overlay)
    return (*problems, *named, *applied), after


async def _apply(
    bench: Bench, item: model.Item, held: documents.Documents, definitions: tuple[model.Definition, ...]
) -> tuple[tuple[model.Problem, ...], documents.Documents]:
    """Put definitions into the store and execute what carries the item's id; return what failed and the documents."""
    overlay, problems = documents.apply(held, item.id, bench.inputs.key.database, definitions)
    normal, refused = await bench.layer.call(bench.layer.put, overlay)
    if refused:
        return (*problems, *refused), overlay
    mine = [(host, name, kind) for owner, host, name, kind in documents.tagged(normal) if owner == item.id]
    failed = await bench.layer.call(bench.layer.probe, mine)
    drifted: tuple[str, ...] = ()
    if any(kind == "model" for _, _, kind in mine):
        drifted = await bench.layer.call(bench.layer.drift)
    hint = " (on SQLite a model is defined by source_queries: the layer cannot tell the types of raw SQL there)"
    said = hint if bench.inputs.key.dialect == "sqlite" else ""
    return (*problems, *failed, *(model.Problem(check="loads", text=f"{one}{said}") for one in drifted)), normal


async def _take_back(
    bench: Bench, item: model.Item, after: documents.Documents, before: documents.Documents
) -> documents.Documents:
    """Purge the item's tag from the store. What the attempt replaced of another item comes back with ``before``."""
    del after
    assert not any(owner == item.id for owner, *_ in documents.tagged(before))  # noqa: S101 - the purge's promise
    normal, problems = await bench.layer.call(bench.layer.put, before)
    if problems:
        raise RuntimeError("; ".join(problem.text for problem in problems))
    return normal
