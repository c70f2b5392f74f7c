"""Build one reference in a private directory: schema, meanings, one session per item, collisions, the tree, validation.

Nothing here is seen by readers: the directory's name begins with ``<database>.building-`` and it holds the store, the
workspaces and at the end the finished tree. What a build settled is kept in a ``Progress``, so that a build that runs out
of its budget can be resumed by the next call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from klaud import errors
from klaud.encoder import agents, codec, decide, documents, item, model, naming, slayer, validate

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.clock import Clock
    from klaud.encoder import files as durable
    from klaud.encoder import inputs


class Progress:
    """What a build has settled so far. ``answered``: the items whose row an agent's own submission made."""

    def __init__(self, manifest: model.Manifest | None = None) -> None:
        """``manifest``: of the partial reference that is resumed, if there is one."""
        self.rows: dict[int, model.Row] = {row.kb_id: row for row in manifest.rows} if manifest else {}
        self.answered = set(self.rows)
        self.accepted: dict[int, tuple[model.Definition, ...]] = (
            {int(number): of for number, of in manifest.definitions.items()} if manifest else {}
        )
        self.before = manifest.usage if manifest else model.Usage()
        self.usage = model.Usage()
        self.warnings: list[str] = []

    def manifest(self, fingerprint: str) -> model.Manifest:
        """Return what the next call needs to resume: what agents answered. Errors are tried again then."""
        return model.Manifest(
            fingerprint=fingerprint,
            rows=tuple(row for row in self.rows.values() if row.kb_id in self.answered),
            definitions={str(number): of for number, of in self.accepted.items()},
            usage=self.before + self.usage,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One build: what from, by whom, in which private directory, until when (monotonic), as what framework."""

    source: inputs.Source
    agent: agents.ItemAgent
    policy: model.Policy
    clock: Clock
    files: durable.Files
    folder: Path
    deadline: float
    framework: str
    forbidden: tuple[str, ...]
    note: Callable[[str], None]


async def run(job: Job, progress: Progress) -> bool:
    """Encode every item and write the finished tree to ``<folder>/tree``, without its marker's directory renamed.

    False when the budget ended first: then there is no tree, and ``progress`` has what was settled.
    """
    of = job.source.inputs
    layer = slayer.Layer(
        database=of.key.database,
        dialect=of.key.dialect,
        url=job.source.url,
        root=job.folder / "store",
        query_seconds=job.policy.query_seconds,
    )
    try:
        held = await _encode(job, layer, progress)
        if held is None:
            return False
        if progress.usage.sessions and not progress.answered:
            _refuse_worthless(of, progress)
        held = _collide(progress, held)
        await _finish(job, progress, held)
    finally:
        await asyncio.to_thread(layer.close)
    return True


async def _encode(job: Job, layer: slayer.Layer, progress: Progress) -> documents.Documents | None:
    """Run a session for each item that needs one; return the documents, None when the budget ended first."""
    of = job.source.inputs
    progress.warnings += of.warnings
    base, skipped = await layer.call(layer.ingest)
    progress.warnings += skipped
    described, unused = documents.describe(base, of.meanings)
    progress.warnings += unused
    held, problems = await layer.call(layer.put, described)
    if problems:
        raise errors.InputError(f"the schema of {of.key.database} does not load: {problems[0].text}")
    plan = decide.plan(of.items)
    for number, why in plan.deferred.items():
        progress.rows[number] = model.Row(kb_id=number, status="deferred", notes=why)
    items = {one.id: one for one in of.items}
    bench = item.Bench(
        inputs=of,
        layer=layer,
        agent=job.agent,
        policy=job.policy,
        clock=job.clock,
        folder=job.folder / "items",
        deadline=job.deadline,
        forbidden=_forbidden(job),
    )
    for number in plan.order:
        if number in progress.rows:
            held = await _resume(layer, of.key.database, number, progress, held)
            continue
        if why := decide.blocked(items[number], progress.rows):
            progress.rows[number] = model.Row(kb_id=number, status="deferred", notes=why)
            continue
        settled = await item.encode(bench, items[number], held, progress.accepted)
        progress.usage += settled.usage
        if settled.row is None:
            return None
        held = settled.held
        progress.rows[number] = settled.row
        if settled.row.status != "error":
            progress.answered.add(number)
        if settled.definitions:
            progress.accepted[number] = settled.definitions
        job.note(f"item {number}: {settled.row.status}")
    return held


async def _resume(
    layer: slayer.Layer, database: str, number: int, progress: Progress, held: documents.Documents
) -> documents.Documents:
    """Apply what an earlier call accepted for an item; what the layer no longer takes is settled again as deferred."""
    definitions = progress.accepted.get(number, ())
    if not definitions:
        return held
    overlay, problems = documents.apply(held, number, database, definitions)
    after, refused = await layer.call(layer.put, overlay)
    if not problems and not refused:
        return after
    del progress.accepted[number]
    text = (*problems, *refused)[0].text
    progress.rows[number] = model.Row(kb_id=number, status="deferred", notes=f"could not be resumed: {text}")
    await layer.call(layer.put, held)
    return held


def _forbidden(job: Job) -> tuple[str, ...]:
    """Return the texts that nothing of this build may hold."""
    of = job.source.inputs
    return (*validate.own_paths(job.forbidden, of.items, of.meanings), *job.source.secrets)


def _refuse_worthless(of: model.Inputs, progress: Progress) -> None:
    """Raise: every session ended in an error. That says nothing about the items, and would be reused for ever."""
    first = next(row for row in progress.rows.values() if row.status == "error")
    raise errors.RetryLaterError(
        f"no agent answered for any item of {of.key.database} ({progress.usage.sessions} sessions); "
        f"item {first.kb_id}: {first.error}",
        advice="Nothing is published. Mend what the message names and run the command again.",
    )


def _collide(progress: Progress, held: documents.Documents) -> documents.Documents:
    """Defer every owner of a collision and what uses it, and purge their entities."""
    out = decide.collisions(progress.accepted)
    for number, why in out.items():
        progress.rows[number] = model.Row(kb_id=number, status="deferred", notes=why)
    return documents.purge(held, out)


async def _finish(job: Job, progress: Progress, held: documents.Documents) -> None:
    """Validate the whole and write the tree: content first, marker last, everything on the disk."""
    of = job.source.inputs
    rows = decide.settle(of.items, progress.rows)
    tree = render(job, progress, held, rows)
    found, _, _ = validate.contents(tree, of.key, forbidden=_forbidden(job), marked=False)
    if not found:
        found = await asyncio.to_thread(
            validate.store, tree, of.key, rows, url=job.source.url, query_seconds=job.policy.query_seconds
        )
    if found:
        shown = "; ".join(found[:10])
        raise errors.KlaudError(
            f"the reference of {of.key.database} does not validate: {shown}",
            advice="What was settled is kept as partial; --rebuild makes it anew. Report it with this message.",
        )
    await asyncio.to_thread(_write, job, tree, of.fingerprint)


def render(job: Job, progress: Progress, held: documents.Documents, rows: tuple[model.Row, ...]) -> dict[str, bytes]:
    """Return the reference's files, without the marker: the same bytes for the same build on every machine."""
    of = job.source.inputs
    database = of.key.database
    by_id = {row.kb_id: row for row in rows}
    names = {one.id: one.knowledge for one in of.items}
    tree = {
        f"datasources/{database}.yaml": slayer.yaml_text(slayer.portable_datasource(database, of.key.dialect)),
        naming.ROWS: codec.encode(of.items),
        naming.RESULTS: codec.encode(rows),
        naming.USAGE: codec.encode(
            model.UsageFile(
                total=progress.before + progress.usage,
                framework=job.framework,
                model=job.policy.model,
                layer=slayer.version(),
                completed=job.clock.now().isoformat(timespec="seconds"),
            )
        ),
    }
    for name, document in held.items():
        tree[f"models/{database}/{name}.yaml"] = slayer.yaml_text(document)
    for one in of.items:
        children = [f"{names[child]} ({naming.memory_id(of.key, child)})" for child in one.children]
        tree[f"memories/{naming.memory_id(of.key, one.id)}.md"] = slayer.memory_text(
            one, children, by_id[one.id].entities
        )
    return tree


def _write(job: Job, tree: dict[str, bytes], fingerprint: str) -> None:
    root = job.folder / "tree"
    folders = {root}
    for name in tree:
        folder = (root / name).parent
        while folder != root:
            folders.add(folder)
            folder = folder.parent
    for folder in sorted(folders):
        job.files.mkdir(folder)
    for name in sorted(tree):
        job.files.write(root / name, tree[name])
    for folder in sorted(folders, reverse=True):
        job.files.sync(folder)
    job.files.write(root / naming.MARKER, f"{fingerprint}\n".encode())
    job.files.sync(root)


def forbidden_paths(*paths: Path) -> tuple[str, ...]:
    """Return the texts by which this machine's own directories would show in a file; short ones would hit by chance."""
    found = [str(path.resolve()) for path in (*paths, Path.home(), Path(tempfile.gettempdir()), Path.cwd())]
    return tuple(dict.fromkeys(text for text in found if len(text) > 4))
