"""Make the matrices of trusted commits with their own generators, as seldom as possible.

Commits whose generators have the same inputs have the same matrices, so they are one piece of work. For each piece: take
what the cache has, lay the inputs out once, and ask for the missing families in as few processes as the layout allows.
What a generator turns out not to know (a subcommand, an optional argument) is learned from its first refusal, which holds
for the other families and for every commit with the same generator files: while one piece finds out, the others wait.

Calls are therefore one for each matrix (or each piece, where one process makes several), and one for each thing that
some generator had to be asked to find out: nothing but the generator itself can say what it knows.

Only commits that the caller has proven may come here. No word of a generator's standard error leaves ``calls.py``.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors
from klaud.baselines import answers, cache, calls, commands, model, origin

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from klaud.baselines import producers, sandbox

Result = model.Matrix | model.NotGenerated


class Generation:
    """One run of ``regenerate``. ``calls`` counts generator processes, ``cached`` matrices that needed none."""

    def __init__(
        self, policy: model.Policy, *, git: producers.GitObjects, store: cache.Cache, box: sandbox.Sandbox
    ) -> None:
        self._policy = policy
        self._generator = policy.generator
        self._git = git
        self._store = store
        self._box = box
        self._keys = origin.Keys(policy, store=store, box=box)
        self._lock = threading.Lock()
        self._known: dict[str, commands.Known] = {}
        self._asking: dict[str, threading.Lock] = {}
        self.parallel = self._generator.bounds.parallel or os.cpu_count() or 1
        self._slots = threading.BoundedSemaphore(self.parallel)
        self.calls = 0
        self.cached = 0

    def run(self, needs: Sequence[model.Need]) -> list[Result]:
        """Return a result for each commit and family, in that order. Needs of one commit are taken together."""
        wanted: dict[str, set[str]] = {}
        for need in needs:
            wanted.setdefault(need.commit, set()).update(need.families)
        present = self._git.fetch(wanted)
        found: dict[tuple[str, str], Result] = {}
        pieces: dict[tuple[object, ...], list[origin.Origin]] = {}
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
            looks = {commit: pool.submit(self._look, commit, present=commit in present) for commit in sorted(wanted)}
            for commit, look in looks.items():
                made_from = _settled(look, [(commit, wanted[commit])])
                if isinstance(made_from, origin.Origin):
                    pieces.setdefault(made_from.same, []).append(made_from)
                else:
                    found.update(made_from)
            jobs = [(each, pool.submit(self._piece, each, wanted)) for each in pieces.values()]
            for each, job in jobs:
                found.update(_settled(job, [(one.commit, wanted[one.commit]) for one in each]))
        return [found[commit, family] for commit in sorted(wanted) for family in sorted(wanted[commit])]

    def _look(self, commit: str, *, present: bool) -> origin.Origin:
        if not present:
            raise _NoMatrixError("producer-unavailable", "the commit is in neither this clone nor the remote")
        made_from = origin.find(self._git, self._generator, commit)
        if made_from is None:
            raise _NoMatrixError("generator-failed", "no configured layout fits the commit's files")
        return made_from

    def _piece(self, commits: Sequence[origin.Origin], wanted: Mapping[str, set[str]]) -> dict[tuple[str, str], Result]:
        """Make the matrices of commits that have the same inputs; what one of them asked for serves all."""
        families = sorted(set().union(*(wanted[each.commit] for each in commits)))
        made = _Piece(self, commits[0]).run(families)
        found: dict[tuple[str, str], Result] = {}
        for family in families:
            asking = [each.commit for each in commits if family in wanted[each.commit]]
            for at, commit in enumerate(asking):
                result = msgspec.structs.replace(made[family], commit=commit)
                if at > 0 and isinstance(result, model.Matrix):
                    result = msgspec.structs.replace(result, cached=True)
                if isinstance(result, model.Matrix) and result.cached:
                    self._count_cached()
                found[commit, family] = result
        return found

    # -- what the pieces share

    @contextlib.contextmanager
    def finding_out(self, key: str) -> Iterator[tuple[commands.Known, contextlib.ExitStack]]:
        """Give what is known of a generator. Where nothing is, others wait until the given stack is closed."""
        with contextlib.ExitStack() as stack:
            known = self._recall(key)
            if known is None:
                with self._lock:
                    asking = self._asking.setdefault(key, threading.Lock())
                stack.enter_context(asking)
                known = self._recall(key)
            yield known or commands.Known(), stack

    def _recall(self, key: str) -> commands.Known | None:
        with self._lock:
            if key in self._known:
                return self._known[key]
        return self._store.known(key)

    def learn(self, key: str, known: commands.Known, *, lasting: bool) -> None:
        """Remember what a generator knows; ``lasting``: in the cache, too."""
        with self._lock:
            self._known[key] = known
        if lasting:
            self._store.put(key, known)

    def start(
        self, argv: Sequence[str], tree: pathlib.Path, *, seconds: float | None = None, stdin: bytes = b""
    ) -> model.Outcome:
        """Start one generator process when a slot is free."""
        with self._slots:
            with self._lock:
                self.calls += 1
            return self._box.run(argv, tree=tree, environment=self._generator.environment, seconds=seconds, stdin=stdin)

    def asked(self, made_from: origin.Origin, reader: answers.Reader) -> calls.Calls:
        """Return what asks the generator of one commit."""
        return calls.Calls(
            made_from, self._policy, reader, git=self._git, box=self._box, start=self.start, parallel=self.parallel
        )

    def keys(self, need: model.Need) -> dict[str, str]:
        """Return, by family, under which keys the matrices of a need are kept; nothing of the commit is run.

        Empty where the commit is not in this clone, or no layout fits it.
        """
        if need.commit not in self._git.present([need.commit]):
            return {}
        made_from = origin.find(self._git, self._generator, need.commit)
        return {} if made_from is None else {family: self.key(made_from, family) for family in need.families}

    def key(self, made_from: origin.Origin, family: str) -> str:
        """Return under which key a matrix is kept."""
        return self._keys.matrix(made_from, family)

    def capability(self, made_from: origin.Origin) -> str:
        """Return under which key it is kept what a generator knows."""
        return self._keys.known(made_from)

    @property
    def store(self) -> cache.Cache:
        """The cache."""
        return self._store

    @property
    def policy(self) -> model.Policy:
        """The benchmark's policy."""
        return self._policy

    def _count_cached(self) -> None:
        with self._lock:
            self.cached += 1


class _Piece:
    """The families of one set of inputs."""

    def __init__(self, generation: Generation, made_from: origin.Origin) -> None:
        self._all = generation
        self._from = made_from
        self._reader = answers.Reader(made_from.fit.layout, generation.policy.generator)
        self._commands = len(made_from.fit.layout.commands)

    def run(self, families: Sequence[str]) -> dict[str, Result]:
        keys = {family: self._all.key(self._from, family) for family in families}
        found: dict[str, Result] = {}
        for family, key in keys.items():
            stored = self._all.store.matrix(key)
            if stored is not None:
                made = answers.Made(entries=stored.entries)
                found[family] = self._matrix(family, made, stored.dropped, cached=True)
        missing = [family for family in families if family not in found]
        if missing:
            with self._all.asked(self._from, self._reader) as asking:
                self._generate(missing, found, keys, asking)
        return found

    def _matrix(
        self, family: str, made: answers.Made, dropped: tuple[str, ...], *, cached: bool = False
    ) -> model.Matrix:
        return model.Matrix(
            commit=self._from.commit,
            family=family,
            entries=made.entries,
            dropped=dropped,
            inputs=self._from.inputs,
            layout=self._from.fit.index,
            cached=cached,
            daemons=made.daemons,
        )

    def _generate(
        self, families: Sequence[str], found: dict[str, Result], keys: Mapping[str, str], asking: calls.Calls
    ) -> None:
        capability = self._all.capability(self._from)
        pending = list(families)
        alone: set[str] = set()
        with self._all.finding_out(capability) as (known, finding):
            state = msgspec.structs.replace(known, alternative=min(known.alternative, self._commands - 1))
            settled = sure = False
            while pending:
                one_each = asking.one_process(state) or settled or alone.issuperset(pending)
                batch = list(pending) if one_each else pending[:1]
                given = asking.ask(batch, state, together=not alone.issuperset(batch))
                before = frozenset(alone)
                refused: commands.Refusal | None = None
                for family, answer in given.items():
                    result, then = self._reader.read(answer)
                    if isinstance(result, commands.Refusal):
                        refused, state = result, then
                        continue
                    if (
                        (answer.shared or answer.missing)
                        and isinstance(result, answers.Failed)
                        and family not in before
                    ):
                        alone.update(batch)  # one broken family can fail a shared call: ask for each by itself
                        continue
                    if not settled or then != state:
                        self._all.learn(capability, then, lasting=then != state)
                        state = then
                    settled = True
                    sure = sure or isinstance(result, answers.Made)
                    finding.close()
                    pending.remove(family)
                    found[family] = self._kept(family, result, then, keys[family])
                if refused is not None:
                    state = answers.learned(state, refused)
                    none_left = state.alternative >= self._commands
                    if not sure:  # what made a matrix knows its arguments, whatever one family says afterwards
                        self._all.learn(capability, commands.Known() if none_left else state, lasting=True)
                    if none_left:
                        none = answers.Failed(code="generator-failed", error="it knows none of the configured commands")
                        found.update({family: self._kept(family, none, state, "") for family in pending})
                        return

    def _kept(self, family: str, result: answers.Made | answers.Failed, known: commands.Known, key: str) -> Result:
        """Return a result as it is handed on; a matrix is put into the cache."""
        if isinstance(result, answers.Failed):
            return model.NotGenerated(commit=self._from.commit, family=family, code=result.code, error=result.error)
        self._all.store.put(key, cache.Entry(entries=result.entries, dropped=known.dropped))
        return self._matrix(family, result, known.dropped)


class _NoMatrixError(Exception):
    """A commit has no matrix, for a reason that is a reason code; caught in this file."""

    def __init__(self, code: Any, why: str) -> None:
        super().__init__(why)
        self.code = code


def _settled(job: concurrent.futures.Future[Any], asked: Iterable[tuple[str, Iterable[str]]]) -> Any:
    """Return what a job gives; where it fails, its commits' families have no matrix: one's fault never stops others."""
    code: Any
    try:
        return job.result()
    except errors.MissingToolError:
        raise
    except _NoMatrixError as error:
        code, why = error.code, str(error)
    except errors.KlaudError as error:
        code, why = "producer-unavailable", str(error)
    except Exception as error:  # noqa: BLE001 - a fault of klaud's own, told by its type
        code, why = "internal-error", type(error).__name__
    return {
        (commit, family): model.NotGenerated(commit=commit, family=family, code=code, error=why)
        for commit, families in asked
        for family in families
    }
