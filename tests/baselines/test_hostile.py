"""Hostile generators, from the commit to what a person reads: each is contained, ended and named, and spares the others.

How each is held is tested in test_sandbox.py; here each stands in a real commit and goes through ``regenerate``. Every one
has a fuse: it ends by itself within seconds and makes at most a few hundred processes. docs/baselines.md has the same
table, and is held to this one.
"""

from __future__ import annotations

import pathlib
import re

import pytest

from klaud import errors
from klaud.baselines import model, run, sandbox, settings
from tests.support.benchmarks import Repository, policy

BOUNDS = settings.Bounds(
    seconds=3.0, memory_bytes=512 << 20, output_bytes=1 << 20, file_bytes=1 << 20, processes=20, parallel=2
)
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "baselines.md"

FORKS = """
import os, time
for _ in range(300):
    if os.fork() == 0:
        time.sleep(12); os._exit(0)
time.sleep(12)
"""
OUTSIDE = """
import os
wrote = []
for path in ("gen.py", "new", "/etc/klaud-here", "/usr/klaud-here", os.path.expanduser("~root/klaud-here")):
    try: open(path, "w").write("x"); wrote.append(path)
    except OSError: pass
print([{"wrote": path} for path in wrote])
"""
EDITS = """
import os
try: os.chmod("gen.py", 0o644)
except OSError: pass
try: open("gen.py", "a").write("# edited"); print("edited")
except OSError: print("[]")
"""
LOOKS = """
import glob, json, os
secrets = [name for name in os.environ if "TOKEN" in name or "KEY" in name]
for path in glob.glob("/proc/[0-9]*/environ"):
    try: secrets += ["found"] if b"hostile-secret" in open(path, "rb").read() else []
    except OSError: pass
print(json.dumps([{"seen": name} for name in secrets]))
"""
STUBBORN = """
import signal, time
for number in (15, 2, 1): signal.signal(number, signal.SIG_IGN)
time.sleep(12)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3); time.sleep(12)
    os._exit(0)
time.sleep(0.2)
print("[]")
"""

HOSTILE: dict[str, tuple[str, str]] = {
    "forks without end": (FORKS, "generator-failed: it started more processes than it may"),
    "prints 10 GB": (
        "import sys\nfor _ in range(10_000): sys.stdout.write('x' * 1_000_000)",
        "generator-failed: it printed more than it may",
    ),
    "writes outside its tree": (OUTSIDE, "a matrix of 0 entries"),
    "edits the checkout": (EDITS, "a matrix of 0 entries"),
    "reads the environment": (LOOKS, "a matrix of 0 entries"),
    "ignores SIGTERM": (STUBBORN, "generator-timeout: it took longer than 3 s"),
    "starts a daemon": (DAEMON, "a matrix of 0 entries, 1 process(es) ended"),
    "takes all memory": ("x = bytes(1 << 30)", "generator-failed: exit status 1"),
    "prints other lines first": (
        "print('loading...')\nprint('[]')", "generator-output-invalid: its output is no matrix: it is not JSON"
    ),
    "prints a name twice": (
        "print('[{\"tp\": 8, \"tp\": 4}]')",
        "generator-output-invalid: its output is no matrix: an object in it has a name twice",
    ),
    "prints bytes that are no text": (
        "import sys\nsys.stdout.buffer.write(b'[{\"a\": \"\\xff\"}]')",
        "generator-output-invalid: its output is no matrix: it is not UTF-8",
    ),
    "claims that klaud's option is unknown, for ever": (
        "import sys\nsys.exit('Error: No such option: --key')",
        "generator-failed: it knows none of the configured commands",
    ),
}  # fmt: skip
GOOD = "print('[{\"n\": 1}]')"
GENERATOR = "import sys\nexec(open(f'scripts/{sys.argv[2]}.py').read())"


def outcome(result: model.Matrix | model.NotGenerated) -> str:
    """Return a result as one line."""
    if isinstance(result, model.NotGenerated):
        return f"{result.code}: {result.error}"
    ended = f", {result.daemons} process(es) ended" if result.daemons else ""
    return f"a matrix of {len(result.entries)} entries{ended}"


def test_each_hostile_generator_is_contained_ended_and_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """All in one commit, beside a good one: what one does reaches neither klaud nor another family's matrix."""
    box = sandbox.Sandbox(BOUNDS)
    try:
        if box.isolation.method != "namespaces":
            pytest.skip("this host grants no namespaces; test_sandbox.py has what a bare group holds")
    except errors.MissingToolError:
        pytest.skip("this host grants the sandbox nothing")
    monkeypatch.setenv("KLAUD_TOKEN", "hostile-secret")
    scripts: dict[str, str | None] = {f"scripts/n{at:02}.py": body for at, (body, _) in enumerate(HOSTILE.values())}
    commit = repository.commit({"gen.py": GENERATOR, "scripts/good.py": GOOD, "configs/all.json": "{}", **scripts})
    layout = settings.Layout(
        inputs=("gen.py", "scripts"), commands=(("{python}", "{root}/gen.py", "--key", "{family}"),)
    )
    hostile = policy(generator={"layouts": (layout,), "optional_arguments": (), "bounds": BOUNDS})
    keys = [f"configs/all.json:n{at:02}" for at in range(len(HOSTILE))]
    need = model.Need(commit=commit, families=("configs/all.json:good", *keys))
    produced = run.regenerate(hostile, [need], git=repository.objects, cache_folder=tmp_path / "cache", box=box)
    found = {each.family: outcome(each) for each in produced.matrices}
    assert found.pop("configs/all.json:good") == "a matrix of 1 entries"
    assert dict(zip(HOSTILE, (found[key] for key in keys), strict=True)) == {
        name: happened for name, (_, happened) in HOSTILE.items()
    }
    assert "hostile-secret" not in repr(produced)
    assert list(pathlib.Path("/").glob("*/klaud-here")) == []


def test_the_page_says_what_happens_to_each() -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = text[text.index("## Hostile generators") : text.index("## Old generators")]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", part, re.MULTILINE)
    assert rows[0][0] == "a generator that"
    assert dict(rows[2:]) == {name: happened for name, (_, happened) in HOSTILE.items()}
