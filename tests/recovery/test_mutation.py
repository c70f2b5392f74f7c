"""The mutation tool itself: what it changes, what it counts, and one file of rules held to it at every run.

All files of rules take minutes (``python tools/mutate.py``); here a sample of the smallest shows that tool and tables work.
"""

from __future__ import annotations

import ast
import importlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import types

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "mutate.py"
LEAKS, FACTS = "klaud/recovery/decide_leaks.py", "klaud/recovery/decide_facts.py"


def tool(name: str) -> types.ModuleType:
    """Return a module of ``tools/``, which is no package; the same one at every call."""
    path = str(ROOT / "tools")
    if path not in sys.path:
        sys.path.append(path)
    return importlib.import_module(name)


def changed(tmp_path: Path, body: str) -> dict[str, str]:
    """Return, for a function with that body, each change in words and the body that it leaves."""
    mutations = tool("mutations")
    path = tmp_path / "rules.py"
    path.write_text(f'def rule(a, b):\n    """Say nothing."""\n    {body}\n')
    mutations.source.cache_clear()
    found = {}
    for mutant in mutations.mutants(path):
        assert (mutant.function, mutant.text) == ("rule", body.splitlines()[mutant.line - 3].strip())
        (function,) = mutant.tree().body
        found[mutant.what] = "; ".join(ast.unparse(s) for s in function.body[1:]).replace("\n   ", "")
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a < b", {"Lt turned round": "a >= b", "Lt moved to its limit": "a <= b"}),
        ("a == 1", {"Eq turned round": "a != 1", "1 became 2": "a == 2"}),
        ("a in {True, b}",
         {"In turned round": "a not in {True, b}", "member dropped: True": "a in {b}", "member dropped: b": "a in {True}",
          "True flipped": "a in {False, b}"}),
        ("a and not b",
         {"and became or": "a or not b", "operand dropped: a": "not b and (not b)", "operand dropped: not b": "a and a",
          "not dropped": "a and (not not b)"}),
        ("a + b", {"Add became Sub": "a - b"}),
        ("a(b)", {"statement left out": "None"}),
        ("a += b", {"Add became Sub": "a -= b", "statement left out": "None"}),
        ("return a", {"returns None": "return None"}),
        ("return None", {}),
        ("return", {}),
        ("[x for x in max(a) if x]",
         {"max became min": "[x for x in min(a) if x]", "filter dropped": "[x for x in max(a)]"}),
        ("b = a if b else 0",
         {"condition always true": "b = a if True else 0", "condition always false": "b = a if False else 0",
          "0 became 1": "b = a if b else 1"}),
        ("a = f'{b[:12]} is {b}'", {}),
        ("a: dict[1, 2] = dict[3, 4]", {}),
        ("'text'", {}),
    ],
)  # fmt: skip
def test_what_is_changed(tmp_path: Path, body: str, expected: dict[str, str]) -> None:
    """Each by itself; texts, annotations and the numbers in a message are left alone."""
    assert changed(tmp_path, body) == expected


def test_flow_is_changed_too(tmp_path: Path) -> None:
    """Loops, cases and their guards; a case that does nothing anyway is none."""
    loop = changed(tmp_path, "for x in a:\n        continue")
    assert set(loop) == {"loop never entered", "continue left out"}
    cases = changed(tmp_path, "match a:\n        case 1 if b:\n            a()\n        case _:\n            pass")
    assert set(cases) >= {"case never taken", "guard dropped", "statement left out"}
    assert cases["guard dropped"].count("case 1:") == 1
    assert changed(tmp_path, "match a:\n        case _:\n            assert_never(a)") == {}


def mutant(line: int, text: str = "return a") -> Any:
    path = ROOT / "klaud" / "rules.py"
    return tool("mutations").Mutant(path, "rule", line, line, line, 4, text, "returns None", line, 0)


def test_what_counts_as_killed() -> None:
    """Time-outs are and are counted apart; equals are left out of the sum; what no test reaches has survived."""
    mutate = tool("mutate")
    ends = {mutant(1): "killed", mutant(2): "timed out", mutant(3, "x"): "every test passes", mutant(4): "every test passes",
            mutant(5, "x"): "no test reaches it"}  # fmt: skip
    entries = {mutate.key_of(mutant(3, "x")): "nobody can tell"}
    one = mutate.score("klaud/rules.py", ends, entries)
    assert (one.mutants, one.killed, one.timeouts, one.equivalent) == (5, 2, 1, 1)
    assert [(m.line, why) for m, why in one.survivors] == [(4, "every test passes"), (5, "no test reaches it")]
    assert one.share == 2 / 4


def test_how_a_mutants_process_ends() -> None:
    """By its CPU limit or the tool's last word is late, any other signal a kill; what could not be tried ends the run."""
    mutate = tool("mutate")
    plugin = mutate.Plugin([], 1)
    ends = {signal.SIGPROF: "timed out", signal.SIGKILL: "timed out", signal.SIGSEGV: "killed",
            mutate.KILLED << 8: "killed", mutate.SURVIVED << 8: "every test passes"}  # fmt: skip
    for status, end in ends.items():
        assert (plugin._end(mutant(1), status), plugin.broken) == (end, "")
    for status in (mutate.BROKEN << 8, 1 << 8):
        plugin.broken = ""
        assert plugin._end(mutant(1), status) == "broken"
        assert "could not be put in place" in plugin.broken


HANGS = """
import os, signal, sys
sys.path.insert(0, {tools!r})
import mutate
def spin(mutant):
    while True:
        pass
_, status = os.waitpid(mutate._fork(None, (), 0.05, place=spin), 0)
print(signal.Signals(os.WTERMSIG(status)).name)
"""


def test_a_mutant_that_hangs_is_ended_by_its_cpu() -> None:
    """A loop without an end takes its limit and no more (in a process of its own, since it forks)."""
    code = HANGS.format(tools=str(TOOL.parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "SIGPROF\n"


def test_a_list_of_equals_goes_stale_loudly(tmp_path: Path) -> None:
    """An entry without a mutant, one that a test kills, one without a reason, one that is there twice."""
    mutate = tool("mutate")
    there, killed = mutant(1), mutant(2, "x")
    entries = {mutate.key_of(m): "nobody can tell" for m in (there, killed, mutant(3, "gone"))}
    wrong = mutate.stale(entries, [there, killed], {there: "every test passes", killed: "killed"})
    assert [w.partition(": ")[0] for w in wrong] == [
        "listed as equivalent, and a test kills it", "listed as equivalent, and no such mutant",
    ]  # fmt: skip
    assert mutate.listed(mutate.EQUIVALENT)
    entry = '[[equivalent]]\nfile = "f"\nfunction = "r"\nline = "l"\nchange = "c"\nbecause = '
    path = tmp_path / "equals.toml"
    for text in (entry + '"so"\n', (entry + '"nobody at all can tell"\n') * 2):
        path.write_text(text)
        with pytest.raises(ValueError, match="has no reason, or is listed twice"):
            mutate.listed(path)


@pytest.mark.timeout(240)
def test_the_rules_of_leaks_are_held_by_their_table() -> None:
    """A sample of mutants, and every one killed; a file that these tests do not reach kills none, and the tool says so."""
    sample = ["--jobs", "1", "--limit", "20", "--tests", "tests/recovery/test_leak_rules.py", LEAKS, FACTS]
    done = subprocess.run([sys.executable, str(TOOL), *sample], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"| {LEAKS} | 20 | 20 | 0 | 0 | 0 | 100.0% |" in done.stdout, done.stdout
    assert f"| {FACTS} | 20 | 0 | 0 | 0 | 20 | 0.0% |" in done.stdout, done.stdout
