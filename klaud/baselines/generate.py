"""Make the matrices of trusted commits with their own generators, as seldom as possible.

For one commit: find the layout that fits, take what the cache has, lay the inputs out once, and ask for the missing
families in as few processes as the layout allows: one for all (``{families}``, a whole matrix, or klaud's driver), else
one each. What a commit turns out not to know (a subcommand, an optional argument) is learned from its first refusal,
holds for the other families, and is remembered for other commits with the same generator files.

Only commits that the caller has proven may come here. No word of a generator's standard error leaves this file.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors
from klaud.baselines import cache, commands, driver, model, producers, sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MAX_ENTRIES = 200_000
"""Entries of one matrix: the largest real one has 2,000."""

Result = model.Matrix | model.NotGenerated


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One family's part of a call: entries, or the process's outcome where there are none."""

    outcome: sandbox.Outcome
    argv: tuple[str, ...]
    output: bytes | None = None
    entries: tuple[dict[str, Any], ...] | None = None
    shared: bool = False


class Generation:
    """One run of ``regenerate``. ``calls`` counts generator processes, ``cached`` matrices from the cache."""

    def __init__(
        self, policy: model.Policy, *, git: producers.GitObjects, store: cache.Cache, box: sandbox.Sandbox
    ) -> None:
        self._policy = policy
        self._generator = policy.generator
        self._git = git
        self._store = store
        self._box = box
        self._lock = threading.Lock()
        self._programs: dict[str, str] = {}
        self._learned: dict[str, cache.Known] = {}
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
        found: list[Result] = []
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as pool:
            jobs = [
                (commit, families, pool.submit(self._commit, commit, families, present=commit in present))
                for commit, families in ((each, sorted(wanted[each])) for each in sorted(wanted))
            ]
            for commit, families, job in jobs:
                try:
                    found += job.result()
                except errors.MissingToolError:
                    raise
                except errors.KlaudError as error:
                    found += _none(commit, families, "producer-unavailable", str(error))
                except Exception as error:  # noqa: BLE001 - one commit's fault never stops the others
                    found += _none(commit, families, "internal-error", type(error).__name__)
        return found

    # -- one commit

    def _commit(self, commit: str, families: Sequence[str], *, present: bool) -> list[Result]:
        if not present:
            return _none(commit, families, "producer-unavailable", "the commit is in neither this clone nor the remote")
        paths = {blob.path for blob in self._git.files(commit)}
        fit = commands.fit(self._generator.layouts, paths)
        if fit is None:
            return _none(commit, families, "generator-failed", "no configured layout fits the commit's files")
        return _Commit(self, commit, fit).run(families)

    def program(self, word: str, tree: Callable[[], pathlib.Path]) -> str:
        """Return what identifies a program's version: its own words, asked once for each file of it."""
        if "{root}" in word:
            return "of the commit"
        word = sys.executable if word == "{python}" else word
        with self._lock:
            if word in self._programs:
                return self._programs[word]
        where = shutil.which(word)
        version = "missing"
        if where:
            stat = pathlib.Path(where).stat()
            key = cache.key(kind="program", path=where, size=stat.st_size, time=stat.st_mtime_ns)
            known = self._store.program(key)
            if known is None:
                done = self._box.run([word, "--version"], tree=tree(), environment={}, seconds=10.0)
                known = cache.Program(
                    version=hashlib.sha256(done.stdout + done.stderr + bytes([done.exit & 255])).hexdigest()
                )
                self._store.put(key, known)
            version = known.version
        with self._lock:
            return self._programs.setdefault(word, version)

    def learned(self, key: str) -> cache.Known:
        """Return what is known of a generator's capabilities."""
        with self._lock:
            known = self._learned.get(key)
        return known or self._store.known(key) or cache.Known()

    def learn(self, key: str, known: cache.Known) -> None:
        """Remember a generator's capabilities."""
        with self._lock:
            self._learned[key] = known
        self._store.put(key, known)

    def start(
        self, argv: Sequence[str], tree: pathlib.Path, *, seconds: float | None = None, stdin: bytes = b""
    ) -> sandbox.Outcome:
        """Start one generator process when a slot is free."""
        with self._slots:
            with self._lock:
                self.calls += 1
            return self._box.run(argv, tree=tree, environment=self._generator.environment, seconds=seconds, stdin=stdin)

    @property
    def box(self) -> sandbox.Sandbox:
        """The sandbox."""
        return self._box

    @property
    def git(self) -> producers.GitObjects:
        """The object store."""
        return self._git

    @property
    def store(self) -> cache.Cache:
        """The cache."""
        return self._store

    @property
    def policy(self) -> model.Policy:
        """The benchmark's policy."""
        return self._policy

    def count_cached(self) -> None:
        """Count one matrix that needed no process."""
        with self._lock:
            self.cached += 1


class _Commit:
    """The families of one commit."""

    def __init__(self, generation: Generation, commit: str, fit: commands.Fit) -> None:
        self._all = generation
        self._commit = commit
        self._fit = fit
        self._layout = fit.layout
        self._optional = generation.policy.generator.optional_arguments
        blobs = generation.git.inputs(commit, fit.layout.inputs)
        self._blobs = blobs
        self._inputs = _digest(blobs)
        self._stack = contextlib.ExitStack()
        self._tree: pathlib.Path | None = None
        self._signature = ""
        self._tree_lock = threading.Lock()

    def run(self, families: Sequence[str]) -> list[Result]:
        with self._stack:
            programs = sorted(
                {command[0]: self._all.program(command[0], self._laid_out) for command in self._layout.commands}.items()
            )
            generator = self._all.policy.generator
            common = {
                "layout": msgspec.to_builtins(self._layout),
                "optional": msgspec.to_builtins(self._optional),
                "environment": dict(generator.environment),
                "salt": generator.salt,
                "programs": programs,
            }
            configs = set(self._fit.files["configs"])
            code = _digest([blob for blob in self._blobs if blob.path not in configs])
            self._capability = cache.key(kind="known", code=code, **common)
            keys = {
                family: cache.key(
                    kind="matrix",
                    inputs=self._inputs,
                    family=family,
                    file=self._file(family),
                    files=self._fit.files,
                    **common,
                )
                for family in families
            }
            found: dict[str, Result] = {}
            for family, key in keys.items():
                stored = self._all.store.matrix(key)
                if stored is not None:
                    self._all.count_cached()
                    found[family] = self._matrix(family, stored.entries, stored.dropped, cached=True)
            self._generate([family for family in families if family not in found], found, keys)
            return [found[family] for family in families]

    def _file(self, family: str) -> str:
        renames = self._all.policy.renames
        return commands.file_of(family, self._fit.files["configs"], renames) or family.partition(":")[0]

    def _matrix(
        self,
        family: str,
        entries: tuple[dict[str, Any], ...],
        dropped: tuple[str, ...],
        *,
        cached: bool = False,
        daemons: int = 0,
    ) -> model.Matrix:
        return model.Matrix(
            commit=self._commit,
            family=family,
            entries=entries,
            dropped=dropped,
            inputs=self._inputs,
            layout=self._fit.index,
            cached=cached,
            daemons=daemons,
        )

    def _laid_out(self) -> pathlib.Path:
        with self._tree_lock:
            if self._tree is None:
                folder = pathlib.Path(tempfile.mkdtemp(prefix="klaud-tree-"))
                self._stack.callback(_remove, folder)
                limit = self._all.policy.generator.bounds.input_bytes
                self._all.git.write(self._blobs, folder, limit=limit)
                folder.chmod(0o755)
                self._tree = folder
                self._signature = "" if self._all.box.isolation.method != "process-group" else _signature(folder)
            return self._tree

    # -- asking

    def _generate(self, families: Sequence[str], found: dict[str, Result], keys: Mapping[str, str]) -> None:
        state = self._all.learned(self._capability)
        pending = list(families)
        alone: set[str] = set()
        settled = False
        while pending:
            batch, state = self._batch(pending, state, alone, settled=settled)
            answers = self._ask(batch, state, together=not alone.issuperset(batch))
            refused: commands.Refusal | None = None
            before = frozenset(alone)
            for family, answer in answers.items():
                result = self._judged(family, answer, state)
                if isinstance(result, commands.Refusal):
                    refused = result
                    continue
                if answer.shared and isinstance(result, model.NotGenerated) and family not in before:
                    alone.update(batch)  # one broken family can fail a shared call: ask for each by itself
                    continue
                settled = True
                pending.remove(family)
                found[family] = result
                if isinstance(result, model.Matrix):
                    stored = cache.Entry(entries=result.entries, dropped=state.dropped, alternative=state.alternative)
                    self._all.store.put(keys[family], stored)
            if refused is not None:
                state = self._next(state, refused)
                self._all.learn(self._capability, state)
                if state.alternative >= len(self._layout.commands):
                    self._all.learn(self._capability, cache.Known())
                    for family in pending:
                        found[family] = self._failed(
                            family, "generator-failed", "it knows none of the configured commands"
                        )
                    return

    def _batch(
        self, pending: Sequence[str], state: cache.Known, alone: set[str], *, settled: bool
    ) -> tuple[list[str], cache.Known]:
        """Return what to ask for next: all at once where that is one process, one where something is to be learned."""
        command = self._layout.commands[min(state.alternative, len(self._layout.commands) - 1)]
        state = cache.Known(alternative=min(state.alternative, len(self._layout.commands) - 1), dropped=state.dropped)
        one_process = self._layout.driver or commands.several(command) or commands.whole(command)
        if one_process or settled or alone.issuperset(pending):
            return list(pending), state
        return list(pending[:1]), state

    def _next(self, state: cache.Known, refused: commands.Refusal) -> cache.Known:
        if refused.kind == "argument":
            return cache.Known(alternative=state.alternative, dropped=tuple(sorted({*state.dropped, *refused.names})))
        return cache.Known(alternative=state.alternative + 1)

    def _words(self, keys: Sequence[str], file: str, state: cache.Known) -> list[str]:
        command = self._layout.commands[state.alternative]
        root = self._all.box.root_of(self._laid_out())
        files = {name: tuple(f"{root}/{path}" for path in paths) for name, paths in self._fit.files.items()}
        words = commands.expand(
            command, root=root, python=sys.executable, keys=keys, file=f"{root}/{file}", files=files
        )
        return words + [each.argument for each in self._optional if each.argument not in state.dropped]

    def _ask(self, families: Sequence[str], state: cache.Known, *, together: bool) -> dict[str, _Answer]:
        command = self._layout.commands[state.alternative]
        key_of = {family: family.partition(":")[2] for family in families}
        if commands.whole(command) or (commands.several(command) and together and len(families) > 1):
            return self._one_call(families, key_of, state)
        if self._layout.driver and len(families) > 1:
            return self._driven(families, key_of, state)
        with concurrent.futures.ThreadPoolExecutor(min(self._all.parallel, len(families))) as pool:
            jobs = {
                family: pool.submit(self._single, self._words([key_of[family]], self._file(family), state))
                for family in families
            }
            return {family: job.result() for family, job in jobs.items()}

    def _single(self, words: list[str]) -> _Answer:
        outcome = self._checked(self._all.start(words, self._laid_out()))
        return _Answer(outcome=outcome, argv=tuple(words), output=outcome.stdout)

    def _one_call(self, families: Sequence[str], key_of: Mapping[str, str], state: cache.Known) -> dict[str, _Answer]:
        words = self._words([key_of[family] for family in families], self._file(families[0]), state)
        outcome = self._checked(self._all.start(words, self._laid_out()))
        parts: dict[str, list[dict[str, Any]]] | None = None
        parsed = _parsed(outcome.stdout, self._layout.output) if outcome.exit == 0 and not outcome.exceeded else ""
        if not isinstance(parsed, str):
            parts = {key: [] for key in key_of.values()}
            for entry in parsed:
                mine = parts.get(str(entry.get(self._layout.family_field)))
                if mine is not None:
                    mine.append(entry)
        return {
            family: _Answer(
                outcome=outcome,
                argv=tuple(words),
                output=outcome.stdout,
                entries=None if parts is None else tuple(parts[key_of[family]]),
                shared=commands.several(self._layout.commands[state.alternative]),
            )
            for family in families
        }

    def _driven(self, families: Sequence[str], key_of: Mapping[str, str], state: cache.Known) -> dict[str, _Answer]:
        every = [self._words([key_of[family]], self._file(family), state) for family in families]
        at = next((i for i, word in enumerate(every[0]) if word.endswith(".py")), 0)
        bounds = self._all.policy.generator.bounds
        root = self._all.box.root_of(self._laid_out())
        spec = {
            "script": every[0][at],
            "jobs": [words[at + 1 :] for words in every],
            "seconds": bounds.seconds,
            "bytes": bounds.output_bytes,
            "configs": [f"{root}/{path}" for path in self._fit.files["configs"]],
        }
        source = pathlib.Path(driver.__file__).read_text(encoding="utf-8")
        outcome = self._checked(
            self._all.start(
                [every[0][0], "-c", source],
                self._laid_out(),
                seconds=bounds.seconds * len(families),
                stdin=msgspec.json.encode(spec),
            )
        )
        lines = outcome.stdout.split(b"\n")
        found: dict[str, _Answer] = {}
        for family, words, line in zip(families, every, [*lines, *[b""] * len(families)], strict=False):
            try:
                said = msgspec.json.decode(line, type=_Driven)
            except msgspec.MsgspecError:  # the driver was ended before this one: its turn comes alone
                found[family] = _Answer(outcome=outcome, argv=tuple(words), output=None, shared=True)
                continue
            part = sandbox.Outcome(
                exit=said.exit, stdout=said.stdout.encode(), stderr=said.stderr.encode(), exceeded=said.exceeded
            )
            found[family] = _Answer(outcome=part, argv=tuple(words), output=part.stdout)
        return found

    def _checked(self, outcome: sandbox.Outcome) -> sandbox.Outcome:
        """Refuse the outcome of a generator that changed its inputs, which only the weakest sandbox lets it do."""
        if self._signature and self._tree is not None and _signature(self._tree) != self._signature:
            with self._tree_lock:
                self._tree = None
            return msgspec.structs.replace(outcome, exceeded="inputs")
        return outcome

    def _literals(self, state: cache.Known) -> list[str]:
        return [word for word in self._layout.commands[state.alternative] if "{" not in word]

    # -- judging

    def _failed(self, family: str, code: Any, error: str) -> model.NotGenerated:
        return model.NotGenerated(commit=self._commit, family=family, code=code, error=error)

    def _judged(self, family: str, answer: _Answer, state: cache.Known) -> Result | commands.Refusal:
        outcome = answer.outcome
        used = [each.argument for each in self._optional if each.argument not in state.dropped]
        if outcome.exceeded == "seconds":
            limit = self._all.policy.generator.bounds.seconds
            return self._failed(family, "generator-timeout", f"it took longer than {limit:g} s")
        if outcome.exceeded:
            return self._failed(family, "generator-failed", _OVER[outcome.exceeded])
        if outcome.not_started:
            return self._failed(family, "generator-failed", f"its program could not be started ({outcome.not_started})")
        if outcome.exit != 0:
            refusal = commands.refusal(outcome.stderr, answer.argv, used, self._literals(state))
            if refusal is not None:
                return refusal
            text = f"exit status {outcome.exit}" if outcome.exit > 0 else f"signal {-outcome.exit}"
            return self._failed(family, "generator-failed", text)
        entries = answer.entries
        if entries is None:
            parsed = _parsed(answer.output or b"", self._layout.output)
            if isinstance(parsed, str):
                return self._failed(family, "generator-output-invalid", parsed)
            entries = tuple(parsed)
        meanings = [each.meaning for each in self._optional if each.argument in state.dropped]
        kept = commands.keep(entries, meanings)
        return self._matrix(family, kept, state.dropped, daemons=outcome.daemons)


class _Driven(msgspec.Struct, frozen=True):
    exit: int
    stdout: str
    stderr: str
    exceeded: str = ""


_OVER = {
    "processes": "it started more processes than it may",
    "memory": "it used more memory than it may",
    "output": "it printed more than it may",
    "inputs": "it changed the files that it was given",
}


def _none(commit: str, families: Sequence[str], code: Any, error: str) -> list[Result]:
    return [model.NotGenerated(commit=commit, family=family, code=code, error=error) for family in families]


def _parsed(output: bytes, form: str) -> list[dict[str, Any]] | str:
    """Return the entries that a generator printed, or what is wrong with its output, without a word of it."""
    try:
        found = (
            msgspec.json.decode(output)
            if form == "json"
            else [msgspec.json.decode(line) for line in output.split(b"\n") if line.strip()]
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"its output is not {form.upper()} ({type(error).__name__})"
    if not isinstance(found, list):
        return "its output is no list"
    if len(found) > MAX_ENTRIES:
        return f"its output has more than {MAX_ENTRIES} entries"
    if not all(isinstance(entry, dict) for entry in found):
        return "its output is no list of objects"
    return found


def _digest(blobs: Sequence[producers.Blob]) -> str:
    text = "\0".join(f"{blob.mode} {blob.oid} {blob.path}" for blob in blobs)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _walk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    yield from sorted(folder.rglob("*"))


def _signature(folder: pathlib.Path) -> str:
    digest = hashlib.sha256()
    for path in _walk(folder):
        digest.update(f"{path.relative_to(folder)}\0{path.lstat().st_mode}\0".encode("utf-8", "surrogateescape"))
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _remove(folder: pathlib.Path) -> None:
    for path in [folder, *_walk(folder)]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
