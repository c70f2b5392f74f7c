"""Change one thing at a time in a pure file of rules and see whether the tests notice: a small mutation tool.

Usage: python tools/mutate.py [--tests FILES] [--limit N] [--seed S] [--jobs J] [--quiet] [FILE...]
Without files: the rules of recovery and leases, against their pure tests (minutes). For one file with its own tests:

    python tools/mutate.py --tests "tests/recovery/test_leak_rules.py" klaud/recovery/decide_leaks.py

pytest collects once, in this process. Every test runs once unchanged while the lines of the mutated files are recorded;
then each mutant is put in place in a forked process (the code of the one function that it changes is exchanged, nothing
else), and only the tests that reach its line run there, quickest first, until one fails.

What counts: a mutant is killed when a test fails with it. One that uses far more CPU than its tests do unchanged
(``PATIENCE``) is killed too and counted apart as a time-out. One that no test reaches has survived. A mutant that changes
nothing that could be observed may be listed in ``mutate_equivalent.toml``, by file, function, source line and change, with
the reason; an entry that matches no mutant, or whose mutant a test kills, is stale and ends the run red. The score is
killed / (all - equivalent), per file; exit status 1 where one file is below ``ENOUGH`` or an entry is stale, 2 where the
tool itself could not work. ``--limit`` draws so many mutants a file by ``--seed``. ``mutations.py`` says what is changed.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gc
import importlib
import io
import os
import random
import resource
import signal
import sys
import threading
import time
import tomllib
import traceback
import types
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import mutations  # noqa: E402 - found through the line above

RULES = (
    "klaud/recovery/decide.py",
    "klaud/recovery/decide_cases.py",
    "klaud/recovery/decide_facts.py",
    "klaud/recovery/decide_leaks.py",
    "klaud/recovery/decide_plan.py",
    "klaud/recovery/rules_archives.py",
    "klaud/recovery/rules_liveness.py",
    "klaud/recovery/rules_touch.py",
    "klaud/leases/codec.py",
    "klaud/leases/decide.py",
    "klaud/leases/rules_touch.py",
)
TESTS = (
    "tests/recovery/test_rules.py tests/recovery/test_decide.py tests/recovery/test_decide_actions.py "
    "tests/recovery/test_liveness.py "
    "tests/recovery/test_ledger_rules.py tests/recovery/test_case_rules.py tests/recovery/test_fact_rules.py "
    "tests/recovery/test_wanted_rules.py tests/recovery/test_plan_rules.py tests/recovery/test_stop_rules.py "
    "tests/recovery/test_leak_rules.py tests/recovery/test_archive_rules.py "
    "tests/leases/test_touch_rules.py tests/leases/test_decide.py "
    "tests/leases/test_codec.py tests/leases/test_codec_rules.py"
)
"""The pure tests: tables over records, no world, no process."""
EQUIVALENT = ROOT / "tools" / "mutate_equivalent.toml"
ENOUGH = 0.95
"""Share of mutants that must be killed, in each file."""
PATIENCE = (2.0, 20.0)
"""CPU seconds that a mutant may take: at least the first, else the second times what its tests take unchanged."""
SECONDS = 120
"""A mutant that sleeps uses no CPU: after so many seconds it is ended all the same."""
MEMORY = 1 << 30
"""Bytes of address space that a mutant may add: one that collects without end fails its test instead of the machine."""
JOBS = 2
"""Mutants tried at the same time."""
KILLED, SURVIVED, BROKEN = 0, 3, 4
"""How a mutant's process ends; BROKEN: the tool could not put the mutant in place."""


@dataclasses.dataclass
class Score:
    """One file's numbers."""

    file: str
    mutants: int
    killed: int
    timeouts: int
    equivalent: int
    survivors: list[tuple[mutations.Mutant, str]]

    @property
    def share(self) -> float:
        """Killed, time-outs among them, of those that can be."""
        able = self.mutants - self.equivalent
        return self.killed / able if able else 1.0


class Plugin:
    """Takes pytest's loop over: first every test unchanged, then the mutants."""

    def __init__(self, chosen: list[mutations.Mutant], jobs: int) -> None:
        """``chosen``: what to try; ``ends``: how each ended; ``broken``: why the run is worth nothing."""
        self.chosen = chosen
        self.jobs = jobs
        self.reach: dict[tuple[str, int], set[int]] = collections.defaultdict(set)
        self.seconds: list[float] = []
        self.ends: dict[mutations.Mutant, str] = {}
        self.broken = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record, then mutate."""
        files = {str(m.path) for m in self.chosen}
        for number, item in enumerate(session.items):
            begun = time.process_time()
            ok = self._recorded(item, number, files)
            self.seconds.append(time.process_time() - begun)
            if not ok:
                self.broken = f"the tests fail without any mutant: {item.nodeid}"
                return True
        gc.collect()
        gc.freeze()
        gc.disable()
        waiting = list(reversed(self.chosen))
        running: dict[int, tuple[mutations.Mutant, float]] = {}
        while (waiting or running) and not self.broken:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop()
                tests = self.covering(mutant)
                if not tests:
                    self.ends[mutant] = "no test reaches it"
                    continue
                limit = max(PATIENCE[0], PATIENCE[1] * sum(self.seconds[n] for n in tests))
                child = _fork(mutant, [session.items[n] for n in tests], limit)
                running[child] = (mutant, time.monotonic() + SECONDS)
            self._reap(running)
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return True

    def covering(self, mutant: mutations.Mutant) -> list[int]:
        """Return the tests that reach a mutant's lines, quickest first."""
        lines = range(mutant.first, mutant.last + 1)
        found = set[int]().union(*(self.reach.get((str(mutant.path), line), set()) for line in lines))
        return sorted(found, key=lambda n: self.seconds[n])

    def _recorded(self, item: pytest.Item, number: int, files: set[str]) -> bool:
        reach = self.reach

        def lines(frame: types.FrameType, event: str, arg: object) -> Any:
            del arg
            if event == "line":
                reach[frame.f_code.co_filename, frame.f_lineno].add(number)
            return lines

        def calls(frame: types.FrameType, event: str, arg: object) -> Any:
            del event, arg
            return lines if frame.f_code.co_filename in files else None

        before = sys.gettrace()
        threading.settrace(calls)
        sys.settrace(calls)
        try:
            return passes(item)
        finally:
            sys.settrace(before)
            threading.settrace(before)

    def _reap(self, running: dict[int, tuple[mutations.Mutant, float]]) -> None:
        for child, (mutant, end) in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if not done and time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                done, status = os.waitpid(child, 0)
            if done:
                del running[child]
                self.ends[mutant] = self._end(mutant, status)
        time.sleep(0.001)

    def _end(self, mutant: mutations.Mutant, status: int) -> str:
        if os.WIFSIGNALED(status):
            return "timed out" if os.WTERMSIG(status) in {signal.SIGPROF, signal.SIGKILL} else "killed"
        match os.WEXITSTATUS(status):
            case code if code == SURVIVED:
                return "every test passes"
            case code if code == KILLED:
                return "killed"
            case _:
                self.broken = f"{mutant.path}:{mutant.line}: {mutant.what}: could not be put in place"
                return "broken"


def passes(item: pytest.Item) -> bool:
    """Run one test with its fixtures; tell whether it passed."""
    from _pytest import runner  # noqa: PLC0415 - the one door to running a collected test again

    request = getattr(item, "_initrequest", None)
    if request is not None:
        request()
    reports = runner.runtestprotocol(item, log=False, nextitem=None)
    return not any(r.failed for r in reports)


def _fork(
    mutant: mutations.Mutant,
    items: Iterable[pytest.Item],
    seconds: float,
    place: Callable[[mutations.Mutant], None] | None = None,
) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = BROKEN
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        _bound_memory()
        (place or put_in_place)(mutant)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            status = KILLED
            status = SURVIVED if all(passes(item) for item in items) else KILLED
    except BaseException:  # noqa: BLE001 - said on the real stderr; the process ends here
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def put_in_place(mutant: mutations.Mutant) -> None:
    """Exchange the code of the function that the mutant changes; whoever holds the function runs the mutant."""
    name = mutant.path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    module = compile(mutant.tree(), str(mutant.path), "exec", dont_inherit=True)
    function = _function(vars(sys.modules[name]), mutant.function)
    (code,) = [c for c in _codes(module) if c.co_qualname == mutant.function]
    function.__code__ = code


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner
            yield from _codes(inner)


def _function(space: dict[str, Any], name: str) -> types.FunctionType:
    owner, _, method = name.rpartition(".")
    found: object = vars(space[owner])[method] if owner else space[method]
    for inner in ("__func__", "fget", "func"):
        found = getattr(found, inner, None) or found
    if not isinstance(found, types.FunctionType):
        raise TypeError(f"{name} is no function: {found!r}")
    return found


# -- equivalent mutants


Key = tuple[str, str, str, str]
"""File, function, source line, change."""


def key_of(mutant: mutations.Mutant) -> Key:
    """Return what a mutant is listed by: no line number, which any edit above it would move."""
    return (mutant.path.relative_to(ROOT).as_posix(), mutant.function, mutant.text, mutant.what)


def listed(path: Path) -> dict[Key, str]:
    """Return the mutants that are listed as equivalent, each with its reason; ValueError where one has none."""
    found: dict[Key, str] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []):
        key = (entry["file"], entry["function"], entry["line"], entry["change"])
        if len(entry["because"].split()) < 4 or key in found:
            raise ValueError(f"{path.name}: {key} has no reason, or is listed twice")
        found[key] = entry["because"]
    return found


def stale(entries: dict[Key, str], existing: list[mutations.Mutant], ends: dict[mutations.Mutant, str]) -> list[str]:
    """Return what is wrong with the list: entries without a mutant, and those that a test kills."""
    keys = collections.defaultdict(list)
    for mutant in existing:
        keys[key_of(mutant)].append(mutant)
    files = {key_of(m)[0] for m in existing}
    wrong = []
    for key in entries:
        if key[0] in files and key not in keys:
            wrong.append(f"listed as equivalent, and no such mutant: {key}")
        if keys[key] and all(ends.get(m, "") in {"killed", "timed out"} for m in keys[key]):
            wrong.append(f"listed as equivalent, and a test kills it: {key}")
    return wrong


# -- the run


def main() -> int:
    """Mutate, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(RULES))
    parser.add_argument("--tests", default=TESTS)
    parser.add_argument("--limit", type=int, default=0, help="at most that many mutants a file, drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--quiet", action="store_true", help="the table only, no survivors")
    parser.add_argument("--equivalent", type=Path, default=EQUIVALENT)
    options = parser.parse_args()
    import pytest  # noqa: PLC0415 - paid once, before the forks

    chance = random.Random(options.seed)  # noqa: S311 - a sample, drawn again by the same seed
    chosen: list[mutations.Mutant] = []
    existing: list[mutations.Mutant] = []
    begun = time.monotonic()
    for file in options.files:
        importlib.import_module(file.removesuffix(".py").replace("/", "."))
        found = list(mutations.mutants(ROOT / file))
        existing += found
        chosen += chance.sample(found, options.limit) if 0 < options.limit < len(found) else found
    plugin = Plugin(chosen, options.jobs)
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--no-summary", "--capture=no"]
    with redirect_stdout(io.StringIO()):
        pytest.main([*quiet, *options.tests.split()], plugins=[plugin])
    if plugin.broken or not plugin.seconds:
        print(plugin.broken or "no test was collected")
        return 2
    print(f"{len(plugin.seconds)} tests, {sum(plugin.seconds):.1f} s of CPU unchanged (traced)")
    entries = listed(options.equivalent)
    scores = [score(file, plugin.ends, entries) for file in options.files]
    show(scores, quiet=options.quiet)
    wrong = stale(entries, existing, plugin.ends)
    print("\n".join([*wrong, f"seed {options.seed}, {time.monotonic() - begun:.0f} s"]))
    return 1 if wrong or any(s.share < ENOUGH for s in scores) else 0


def score(file: str, ends: dict[mutations.Mutant, str], entries: dict[Key, str]) -> Score:
    """Count one file's mutants."""
    mine = {m: end for m, end in ends.items() if m.path == ROOT / file}
    dead = [m for m, end in mine.items() if end in {"killed", "timed out"}]
    excused = [m for m, end in mine.items() if end == "every test passes" and key_of(m) in entries]
    left = [(m, end) for m, end in mine.items() if m not in set(dead) | set(excused)]
    late = sum(end == "timed out" for end in mine.values())
    return Score(file, len(mine), len(dead), late, len(excused), sorted(left, key=lambda x: (x[0].line, x[0].column)))


def show(scores: list[Score], *, quiet: bool) -> None:
    """Print the survivors, then the table."""
    for one in scores:
        for mutant, why in [] if quiet else one.survivors:
            print(f"{one.file}:{mutant.line}:{mutant.column}: {mutant.what} ({why})\n        {mutant.text}")
    total = Score(
        file="all of them",
        mutants=sum(s.mutants for s in scores),
        killed=sum(s.killed for s in scores),
        timeouts=sum(s.timeouts for s in scores),
        equivalent=sum(s.equivalent for s in scores),
        survivors=[],
    )
    print("| file | mutants | killed | of which timed out | equivalent | survived | score |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for one in [*scores, total]:
        left = one.mutants - one.killed - one.equivalent
        cells = (one.file, one.mutants, one.killed, one.timeouts, one.equivalent, left, f"{one.share:.1%}")
        print("| " + " | ".join(str(cell) for cell in cells) + " |")


if __name__ == "__main__":
    sys.exit(main())
