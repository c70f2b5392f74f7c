"""A repository that has just adopted klaud, on the embedded GitHub: init's workflows, a small benchmark, the bot's token."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from klaud import fakehub
from klaud.cli import init, main
from klaud.planner import rules_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

REPOSITORY = "acme/bench"
CRON = "17 */6 * * *"
CONFIG = """\
bot: 90001
bot-login: klaud-bot
session: {framework: scripted, isolation: best-effort}
benchmarks:
  - name: bench
    families: {files: ["configs/*.yaml"]}
    generator:
      layouts:
        - inputs: [tools, configs]
          commands: [[python3, "{root}/tools/matrix.py", "{family}"]]
    rows: {file: rows.json}
    sources: [{file: candidates.jsonl}]
    workflows: {smoke: bench-smoke.yml, final: bench-final.yml}
    edit-scope: {values: [{files: ["configs/*.yaml"], keys: ["*.image"]}]}
"""
SMOKE = "name: smoke it\non: {workflow_dispatch: {}}\njobs: {smoke: {runs-on: ubuntu-latest, steps: [{run: true}]}}\n"
FINAL = (
    "name: measure it all\non: {pull_request: {types: [labeled]}}\n"
    "jobs: {final: {runs-on: ubuntu-latest, steps: [{run: true}]}}\n"
)
FILES = {
    ".github/klaud.yml": CONFIG,
    ".github/workflows/bench-smoke.yml": SMOKE,
    ".github/workflows/bench-final.yml": FINAL,
    "configs/bench.yaml": "one: {image: v1}\n",
    "tools/matrix.py": "print('[]')\n",
    "rows.json": "[]",
    "candidates.jsonl": "",
}


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


class Adopted:
    """The repository, its clone, and the command line in the bot's environment."""

    def __init__(self, hub: fakehub.Hub, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.hub = hub
        self.clone = clone
        self._capsys = capsys

    @property
    def repository(self) -> fakehub.Repository:
        return self.hub.repository(REPOSITORY)

    def klaud(self, *argv: str) -> tuple[int, str]:
        """Run a verb in this process; return its status and what it printed."""
        self._capsys.readouterr()
        status = 0
        try:
            main.main(list(argv))
        except SystemExit as end:
            status = int(end.code or 0)
        said = self._capsys.readouterr()
        return status, said.out + said.err

    def commit(self, files: dict[str, str | None]) -> None:
        self.hub.commit(REPOSITORY, "main", files, author="mira")


@contextlib.contextmanager
def adopted(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Adopted]:
    clone = folder / "clone"
    write(clone, FILES)
    workflows = {path: text for path, text in init.files(clone, CRON).items() if path != init.CONFIG}
    write(clone, workflows)
    with fakehub.Hub(folder / "hub") as hub:
        hub.add_account("klaud-bot", id=90001, role="write")
        hub.add_account("mira", id=90003, role="admin")
        hub.add_token("made-up-bot", "klaud-bot")
        hub.create_repository(REPOSITORY, files={**FILES, **workflows}, author="mira")
        hub.actions.register(hub.repository(REPOSITORY))
        for label in ("klaud-handoff", "full-sweep"):
            hub.label(hub.repository(REPOSITORY), label)
        with hub.lock:
            hub.actions.fire_schedule(hub.repository(REPOSITORY), "klaud-plan.yml")
            for run in hub.repository(REPOSITORY).runs.values():  # in time, as if the newest slot were now
                run.created_at = rules_schedule.slot_of([CRON], run.created_at) or run.created_at
        with fakehub.serve(hub) as server:
            for name in ("GITHUB_TOKEN", "GITHUB_RUN_ID", "GITHUB_REF", "GITHUB_STEP_SUMMARY", "KLAUD_PAUSED"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("KLAUD_TOKEN", "made-up-bot")
            monkeypatch.setenv("KLAUD_RECORD_KEY", "a made-up key")
            monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
            for name in ("GITHUB_API_URL", "GITHUB_SERVER_URL"):
                monkeypatch.setenv(name, server.url)
            monkeypatch.chdir(clone)
            yield Adopted(hub, clone, capsys)
