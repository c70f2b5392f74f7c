"""``ensure_reference``: the reference is there when it returns, built at most once, whoever else wants it.

The life of a place: ABSENT -> BUILDING (a private directory beside it) -> COMPLETE (its marker), or PARTIAL
(``<database>.partial/``) when the budget ended first; the next call resumes it. A directory without a marker is scrap and
is removed by the next build; one with a marker and unreadable rows is corrupt, which is an error, never a silent rebuild.

Promises: a marker is never on incomplete content, wherever the process is stopped. ``built`` is true, and usage is
reported, only by the call that ran the encoder. Not promised: that inputs which changed since are noticed; a marker that is
there is reused before anything else is touched (``is_stale`` compares).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from typing import TYPE_CHECKING

import msgspec

from klaud import errors
from klaud.encoder import agents, build, codec, decide, files, inputs, lock, model, naming

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from klaud.clock import Clock


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One reference and all that is needed to make it.

    ``environment`` is where a DSN is read from; ``note`` takes one line of progress at a time; ``rebuild`` wipes what is
    there first.
    """

    key: model.Key
    data: Path
    references: Path
    agent: agents.ItemAgent
    clock: Clock
    framework: str
    policy: model.Policy = dataclasses.field(default_factory=model.Policy)
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rebuild: bool = False
    files: files.Files = dataclasses.field(default_factory=files.Files)
    note: Callable[[str], None] = lambda _: None


class Place:
    """Where one reference lives, and what may be done there."""

    def __init__(self, references: Path, key: model.Key, operations: files.Files) -> None:
        """``operations``: by which everything here is changed."""
        self.names = naming.names(key)
        self.parent = references.absolute() / self.names.parent
        self.target = self.parent / self.names.directory
        self.partial = self.parent / self.names.partial
        self._files = operations

    def complete(self) -> model.ReferenceEntry | None:
        """Return the complete reference, None where there is none; InputError where it is corrupt."""
        if decide.state(files.entries(self.target), partial=False) != "complete":
            return None
        fingerprint, items, rows = inputs.reference(self.target, self.names)
        return model.ReferenceEntry(
            directory=str(self.target), fingerprint=fingerprint, kb_rows=items, results=rows, built=False
        )

    def wipe(self) -> None:
        """Remove the reference and what was kept of an earlier build: its marker first, so that no reader trusts it."""
        if naming.MARKER in files.entries(self.target):
            self._refuse_foreign(self.target)
            self._files.remove(self.target / naming.MARKER)
        self.clean()
        self._files.remove_tree(self.partial)

    def clean(self) -> None:
        """Remove the private directories of builds that died, and a reference's directory that has no marker."""
        for name in sorted(files.entries(self.parent)):
            if name.startswith(self.names.building):
                self._files.remove_tree(self.parent / name)
        if decide.state(files.entries(self.target), partial=False) == "scrap":
            self._refuse_foreign(self.target)
            self._files.remove_tree(self.target)
        if decide.state(files.entries(self.partial), partial=True) == "scrap":
            self._refuse_foreign(self.partial)
            self._files.remove_tree(self.partial)

    def _refuse_foreign(self, directory: Path) -> None:
        unknown = decide.foreign(files.entries(directory))
        if unknown:
            raise errors.InputError(
                f"{self.names.parent}/{directory.name} has {unknown[0]!r}, which no build of klaud makes: not removed",
                advice="Move that directory away, or choose another directory for the references.",
            )

    def manifest(self, fingerprint: str) -> model.Manifest | None:
        """Return the manifest of the partial reference of exactly these inputs, else None (an older one is removed)."""
        if decide.state(files.entries(self.partial), partial=True) != "partial":
            return None
        data = files.read(self.partial / naming.MANIFEST, codec.FILE_BYTES)
        with contextlib.suppress(errors.InputError):
            manifest = codec.decode(data, model.Manifest, naming.MANIFEST)
            if manifest.fingerprint == fingerprint:
                return manifest
        self._files.remove_tree(self.partial)
        return None

    def keep_partial(self, of: model.Inputs, progress: build.Progress) -> None:
        """Keep what a build settled: content first, manifest last and by rename."""
        self._files.mkdir(self.partial)
        rows = decide.settle(of.items, progress.rows)
        self._files.replace(self.partial / naming.ROWS, codec.encode(of.items))
        self._files.replace(self.partial / naming.RESULTS, codec.encode(rows))
        self._files.replace(self.partial / naming.MANIFEST, codec.encode(progress.manifest(of.fingerprint)))


async def ensure_reference(request: Request) -> model.ReferenceEntry:
    """Return the reference, building it when there is none. See the module's promises.

    InputError: something is wrong with the inputs or a directory, nothing was built. RetryLaterError: another build did
    not end in time, or the database cannot be reached. KlaudError: the build does not validate, nothing was kept.
    """
    place = Place(request.references, request.key, request.files)
    if not request.rebuild:
        entry = await asyncio.to_thread(place.complete)
        if entry is not None:
            return entry
    await asyncio.to_thread(_source, request)  # bad inputs are refused before anything is made
    await asyncio.to_thread(request.files.mkdir, place.parent)
    deadline = request.clock.monotonic() + request.policy.lock_seconds
    async with lock.held(
        place.parent / place.names.lock, place.parent / place.names.holder, deadline=deadline, clock=request.clock
    ):
        if not request.rebuild:
            entry = await asyncio.to_thread(place.complete)
            if entry is not None:
                return entry
        source = await asyncio.to_thread(_source, request)  # again: they may have changed while the lock was waited for
        await asyncio.to_thread(place.wipe if request.rebuild else place.clean)
        return await _build(request, place, source)


def _source(request: Request) -> inputs.Source:
    return inputs.read(request.key, request.data, request.environment, query_seconds=request.policy.query_seconds)


async def _build(request: Request, place: Place, source: inputs.Source) -> model.ReferenceEntry:
    of = source.inputs
    progress = build.Progress(await asyncio.to_thread(place.manifest, of.fingerprint))
    folder = place.parent / f"{place.names.building}{secrets.token_hex(8)}"
    await asyncio.to_thread(request.files.mkdir, folder)
    job = build.Job(
        source=source,
        agent=request.agent,
        policy=request.policy,
        clock=request.clock,
        files=request.files,
        folder=folder,
        deadline=request.clock.monotonic() + request.policy.budget_seconds,
        framework=request.framework,
        forbidden=build.forbidden_paths(request.data, request.references),
        note=request.note,
    )
    try:
        whole = await build.run(job, progress)
        if not whole:
            await asyncio.to_thread(place.keep_partial, of, progress)
            return _entry(str(place.partial), of, progress, state="partial")
        if await asyncio.to_thread(request.files.rename, folder / "tree", place.target):
            await asyncio.to_thread(request.files.remove_tree, place.partial)
            return _entry(str(place.target), of, progress, state="complete")
        return await asyncio.to_thread(_overtaken, place, progress)
    except BaseException:
        if progress.usage.sessions:  # what agents were paid for is kept, whatever went wrong after
            place.keep_partial(of, progress)
        raise
    finally:
        await asyncio.shield(asyncio.to_thread(request.files.remove_tree, folder))


def _overtaken(place: Place, progress: build.Progress) -> model.ReferenceEntry:
    """Return the reference that was there first: a success exactly when it has its marker."""
    winner = place.complete()
    if winner is None:
        raise errors.RetryLaterError(f"{place.names.local} is in the way of a finished build and has no marker")
    return msgspec.structs.replace(winner, wasted=progress.usage)


def _entry(directory: str, of: model.Inputs, progress: build.Progress, *, state: str) -> model.ReferenceEntry:
    return model.ReferenceEntry(
        directory=directory,
        fingerprint=of.fingerprint,
        kb_rows=of.items,
        results=decide.settle(of.items, progress.rows),
        built=True,
        state="complete" if state == "complete" else "partial",
        usage=progress.usage,
        warnings=tuple(progress.warnings),
    )


async def is_stale(request: Request, entry: model.ReferenceEntry) -> bool:
    """Tell whether the inputs are no longer the ones that a complete reference was built from. Reads only."""
    return (await asyncio.to_thread(_source, request)).inputs.fingerprint != entry.fingerprint
