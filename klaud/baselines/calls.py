"""One commit's generator, started: its inputs laid out once, its command line, one process for one family or for several.

How many processes a set of families takes is the layout's to say: one for all (``{families}``, a whole matrix, or klaud's
driver), else one each, at most ``parallel`` at a time. What an answer means is read elsewhere (``answers.py``).
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import pathlib
import shutil
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Self

import msgspec

from klaud.baselines import answers, commands, driver, model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from klaud.baselines import origin, producers, sandbox


class Calls:
    """Asks the generator of one commit. Used as a context: the laid-out inputs are removed at its end."""

    def __init__(
        self,
        made_from: origin.Origin,
        policy: model.Policy,
        reader: answers.Reader,
        *,
        git: producers.GitObjects,
        box: sandbox.Sandbox,
        start: Callable[..., model.Outcome],
        parallel: int,
    ) -> None:
        """``start(argv, tree, seconds=, stdin=)`` starts one process in the sandbox."""
        self._from = made_from
        self._policy = policy
        self._reader = reader
        self._git = git
        self._box = box
        self._start = start
        self._parallel = parallel
        self._layout = made_from.fit.layout
        self._lock = threading.Lock()
        self._tree: pathlib.Path | None = None
        self._signature = ""
        self._folders: list[pathlib.Path] = []

    def __enter__(self) -> Self:
        """Nothing is laid out before the first call."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was laid out."""
        for folder in self._folders:
            _remove(folder)

    def one_process(self, state: commands.Known) -> bool:
        """Tell whether several families are asked for in one process."""
        command = self._layout.commands[state.alternative]
        return bool(self._layout.driver) or commands.several(command) or commands.whole(command)

    def ask(self, families: Sequence[str], state: commands.Known, *, together: bool) -> dict[str, answers.Answer]:
        """Return each family's answer. ``together``: one process may be asked for several; else each gets its own."""
        command = self._layout.commands[state.alternative]
        if commands.whole(command) or (commands.several(command) and together and len(families) > 1):
            return self._listed(families, state)
        if self._layout.driver and together and (len(families) > 1 or self._reader.used(state)):
            return self._driven(families, state)
        with concurrent.futures.ThreadPoolExecutor(min(self._parallel, len(families))) as pool:
            jobs = {family: pool.submit(self._single, family, state) for family in families}
            return {family: job.result() for family, job in jobs.items()}

    # -- inputs and words

    def _laid_out(self) -> pathlib.Path:
        with self._lock:
            if self._tree is None:
                folder = pathlib.Path(tempfile.mkdtemp(prefix="klaud-tree-"))
                self._folders.append(folder)
                limit = self._policy.generator.bounds.input_bytes
                self._git.write(self._from.blobs, folder, limit=limit)
                folder.chmod(0o755)
                self._tree = folder
                self._signature = "" if self._box.isolation.method != "process-group" else _signature(folder)
            return self._tree

    def _words(self, families: Sequence[str], state: commands.Known, *, optional: bool = True) -> list[str]:
        root = self._box.root_of(self._laid_out())
        words = commands.expand(
            self._layout.commands[state.alternative],
            root=root,
            python=sys.executable,
            keys=[_key(family) for family in families],
            file=f"{root}/{self._from.file(families[0], self._policy)}",
            files={name: tuple(f"{root}/{path}" for path in paths) for name, paths in self._from.fit.files.items()},
        )
        return words + (self._reader.used(state) if optional else [])

    def _run(self, words: Sequence[str], *, seconds: float | None = None, stdin: bytes = b"") -> model.Outcome:
        """Run one process; where only permissions guard the inputs, refuse the outcome of one that changed them."""
        tree = self._laid_out()
        outcome = self._start(words, tree, seconds=seconds, stdin=stdin)
        if self._signature and _signature(tree) != self._signature:
            with self._lock:
                self._tree = None
            return msgspec.structs.replace(outcome, exceeded="inputs")
        return outcome

    # -- the three ways of asking

    def _single(self, family: str, state: commands.Known) -> answers.Answer:
        words = self._words([family], state)
        return answers.Answer(tries=(answers.Try(state=state, argv=tuple(words), outcome=self._run(words)),))

    def _listed(self, families: Sequence[str], state: commands.Known) -> dict[str, answers.Answer]:
        words = self._words(families, state)
        outcome = self._run(words)
        good = outcome.exit == 0 and not outcome.exceeded
        parts = answers.divide(outcome.stdout, self._layout, [_key(family) for family in families]) if good else None
        tried = (answers.Try(state=state, argv=tuple(words), outcome=outcome),)
        return {
            family: answers.Answer(
                tries=tried,
                entries=None if parts is None else tuple(parts[_key(family)]),
                shared=commands.several(self._layout.commands[state.alternative]),
            )
            for family in families
        }

    def _driven(self, families: Sequence[str], state: commands.Known) -> dict[str, answers.Answer]:
        every = [self._words([family], state, optional=False) for family in families]
        at = next((i for i, word in enumerate(every[0]) if word.endswith(".py")), 0)
        bounds = self._policy.generator.bounds
        root = self._box.root_of(self._laid_out())
        optional = self._reader.used(state)
        spec = {
            "script": every[0][at],
            "jobs": [words[at + 1 :] for words in every],
            "optional": optional,
            "seconds": bounds.seconds,
            "bytes": bounds.output_bytes,
            "configs": [f"{root}/{path}" for path in self._from.fit.files["configs"]],
        }
        source = pathlib.Path(driver.__file__).read_text(encoding="utf-8")
        outcome = self._run(
            [every[0][0], "-c", source], seconds=bounds.seconds * len(families), stdin=json.dumps(spec).encode()
        )
        said = {} if outcome.exceeded == "inputs" else _said(outcome.stdout)
        found: dict[str, answers.Answer] = {}
        for number, (family, words) in enumerate(zip(families, every, strict=True)):
            tries = _tries(said.get(number, ()), state, words, optional)
            if tries:
                found[family] = answers.Answer(tries=tries)
            else:  # the driver was ended before this one, or its line is not to be believed: its turn comes alone
                whole = answers.Try(state=state, argv=(*words, *optional), outcome=outcome)
                found[family] = answers.Answer(tries=(whole,), shared=True, missing=True)
        return found


class _Said(msgspec.Struct, frozen=True):
    """What the driver says of one try."""

    used: tuple[str, ...]
    exit: int
    stdout: str
    stderr: str
    exceeded: str = ""


class _Line(msgspec.Struct, frozen=True):
    """What the driver says of one job."""

    job: int
    tries: tuple[_Said, ...]


def _said(output: bytes) -> dict[int, tuple[_Said, ...]]:
    """Return what the driver said of each job; a job of which it spoke twice is one of which it said nothing."""
    found: dict[int, list[tuple[_Said, ...]]] = {}
    for text in output.split(b"\n"):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.MsgspecError:
            continue
        found.setdefault(line.job, []).append(line.tries)
    return {job: several[0] for job, several in found.items() if len(several) == 1}


def _tries(
    said: Sequence[_Said], state: commands.Known, words: Sequence[str], optional: Sequence[str]
) -> tuple[answers.Try, ...]:
    """Return the driver's tries of one job."""
    return tuple(
        answers.Try(
            state=commands.Known(
                alternative=state.alternative,
                dropped=tuple(sorted({*state.dropped, *(set(optional) - set(each.used))})),
            ),
            argv=(*words, *each.used),
            outcome=model.Outcome(
                exit=each.exit,
                stdout=each.stdout.encode("utf-8", "surrogatepass"),
                stderr=each.stderr.encode("utf-8", "surrogatepass"),
                exceeded=each.exceeded,
            ),
        )
        for each in said
    )


def _key(family: str) -> str:
    return family.partition(":")[2]


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
