"""Writes a memory world, and what disturbs its next sweeps, as a scene file that ``klaud scene run FILE`` takes.

Objects get the names of their memory ids: a commit with content becomes a scene's commit, and its id in a record's text
becomes ``<commit:NAME>``, so that records name the same commits in git. ``previous`` is left out of records, since it would
name a memory id. A person's act and a spoilt call become a ``human`` and a ``fault`` before the same call of the same kind:
exact where one call of a protocol is one request (all but listings of several pages).

Not written: results of final runs (their evidence is unreadable in the scene), cancellations under way, and the seconds
that pass between two sweeps.
"""

from __future__ import annotations

import datetime
import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from klaud import names
from klaud.fakehub import scenes
from klaud.github import retry
from klaud.recovery import settle_refs
from tests.support import memory_replay
from tests.support.memory_world import EMPTY_TREE, Spoil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from klaud.github import model
    from tests.support.memory_replay import Incident, Played, Step
    from tests.support.memory_world import Call, World

Data = dict[str, Any]

ROUTES = {
    "run": "GET /repos/{owner}/{repo}/actions/runs/{run_id}",
    "runs": "GET /repos/{owner}/{repo}/actions/runs",
    "jobs": "GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs",
    "artifacts": "GET /repos/{owner}/{repo}/actions/runs/{run_id}/artifacts",
    "pulls_of_heads": "POST /graphql",
    "pull_details": "POST /graphql",
    "mark_ready": "POST /graphql",
    "convert_to_draft": "POST /graphql",
    "comment": "POST /repos/{owner}/{repo}/issues/{issue_number}/comments",
    "close_pull": "PATCH /repos/{owner}/{repo}/pulls/{pull_number}",
    "reopen_pull": "PATCH /repos/{owner}/{repo}/pulls/{pull_number}",
    "cancel_run": "POST /repos/{owner}/{repo}/actions/runs/{run_id}/*",
    "check_right": "POST /repos/{owner}/{repo}/pulls",
    "refs.list": "GET /*.git/info/refs",
    "refs.read": "POST /*.git/git-upload-pack",
    "refs.apply": "POST /*.git/git-receive-pack",
}
"""The request that each protocol call is."""

WORKFLOW_RUNS = "GET /repos/{owner}/{repo}/actions/workflows/{workflow_id}/runs"
DISPATCHES = "POST /repos/{owner}/{repo}/actions/workflows/{workflow_id}/dispatches"
TRIES = retry.Policy().tries
"""So often a read fails that fails after all tries, and no more."""

CANCELS = {
    "ignored": {"on-cancel": "ignore"},
    "deaf": {"on-cancel": "ignore", "on-force-cancel": "ignore"},
    "zombie": {"on-cancel": "refuse", "on-force-cancel": "refuse"},
    "force-only": {"on-cancel": "refuse"},
}
_OID = re.compile(r"[0-9a-f]{40}")


def scene_of(incident: Incident) -> Data:
    """Return the mapping of the scene that begins as the incident does."""
    incident = memory_replay.at_first_sweep(incident)
    played = memory_replay.begun(incident)
    scene = _Writing(played.scene.world).scene(incident)
    if incident.steps:
        played = memory_replay.replayed(incident)
        for step, calls, before in zip(played.steps, played.calls, _before(played.calls), strict=True):
            _disturb(scene, played, step, calls, before)
    return scene


def text_of(incident: Incident, title: str = "") -> str:
    """Return the scene file: what is broken and how to see it, then the scene."""
    data = scene_of(incident)
    about = title or (incident.wrong[0] if incident.wrong else "a recovery world")
    data = {"scene": data["scene"], "title": about, **data}
    sweeps = max(1, len(incident.steps))
    lines = [f"# {line}" for wrong in incident.wrong for line in wrong.splitlines()]
    lines.append(f"# klaud scene run FILE{' --verb recover' * sweeps if sweeps > 1 else ''}")
    return "\n".join(lines) + "\n" + yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)


def write(played: Played, path: Path) -> Path:
    """Write the scene of what went wrong, as small as it gets, and the story of the whole world as its comment."""
    small = memory_replay.shrunk(played.incident())
    story = "".join(f"# {line}\n" for line in played.story)
    path.write_text(f"{text_of(small)}# the world that it was found in:\n{story}", encoding="utf-8")
    return path


class _Writing:
    """One world being written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = world.state
        self.names = {oid: f"c-{oid[:12]}" for oid in self._content()}

    def _content(self) -> Iterator[str]:
        """Yield the commits with content that something needs, parents first."""
        wanted: set[str] = set()
        starts = [
            *self.state.refs.values(),
            *(r.head_sha for r in self.state.runs.values()),
            *self.state.bases.values(),
        ]
        starts += [pull.head_oid for pull in self.state.pulls.values()]
        for start in starts:
            for oid in self.world.ancestors(start):
                if self.state.objects[oid].tree != EMPTY_TREE:
                    wanted.add(oid)
        yield from (oid for oid in self.state.objects if oid in wanted)

    def scene(self, incident: Incident) -> Data:
        state = self.state
        data = scenes.base()
        people = [a for a in self.world.accounts.values() if a.id != self.world.bot.id]
        data["clock"] = {"start": _time(incident.time)}
        data["accounts"] = [{"login": self.world.bot.login, "id": self.world.bot.id, "role": "write"}]
        data["accounts"] += [{"login": a.login, "id": a.id, "type": a.type, "role": "maintain"} for a in people]
        data["labels"] = sorted({*data["labels"], *(label for pull in state.pulls.values() for label in pull.labels)})
        waits = {"poll-seconds": 1, "own-write-seconds": 1}
        data["config"] = {**data["config"], "ignored-actors": [self.world.reviewer.id], "recovery": waits}
        files = data["commits"][0]["files"]
        data["commits"] = [self._commit(oid, files if index == 0 else None) for index, oid in enumerate(self.names)]
        heads = {
            ref.removeprefix("refs/heads/"): oid for ref, oid in state.refs.items() if ref.startswith("refs/heads/")
        }
        data["branches"] = {branch: self.names[oid] for branch, oid in heads.items() if oid in self.names}
        data["refs"] = [
            self._ref(ref, oid)
            for ref, oid in state.refs.items()
            if not (ref.startswith("refs/heads/") and oid in self.names)
        ]
        data["pulls"] = [self._pull(pull) for pull in state.pulls.values()]
        data["runs"] = [self._run(run, incident) for run in state.runs.values()]
        if incident.me is not None:
            data["self"] = {"run": incident.me.run_id, "job": incident.me.job, "attempt": incident.me.attempt}
        return data

    def _commit(self, oid: str, files: dict[str, str] | None) -> Data:
        thing = self.state.objects[oid]
        name = self.names[oid]
        found: Data = {"name": name, "message": thing.message.decode(errors="replace"), "author": _login(thing.author)}
        if thing.committer != thing.author:
            found["committer"] = _login(thing.committer)
        if thing.parents:
            found["parent"] = self.names[thing.parents[0]]
        found["files"] = files if files is not None else {f"work/{name}.txt": f"{name}\n"}
        return found

    def _ref(self, ref: str, oid: str) -> Data:
        name = ref.replace(oid, "<oid>")
        chain = [self.state.objects[at] for at in reversed(self.world.ancestors(oid))]
        if oid in self.names:
            return {"ref": name, "commit": self.names[oid]}
        records = [_record(thing.message) for thing in chain]
        author = _login(chain[-1].author)
        if all(record is not None for record in records):
            return {"ref": name, "records": [self._named(record) for record in records], "author": author}
        return {"ref": name, "text": chain[-1].message.decode(errors="replace"), "author": author}

    def _named(self, record: Any) -> Any:
        """Return a record with commits by name."""
        text = json.dumps(record)
        return json.loads(_OID.sub(lambda m: f"<commit:{self.names[m[0]]}>" if m[0] in self.names else m[0], text))

    def _pull(self, pull: model.Pull) -> Data:
        number, state = pull.number, self.state
        events, comments = [], list(state.comments[number])
        spoken: list[Data] = []
        for event in state.timeline[number]:
            if event.kind == "commented":
                made = comments.pop(0)
                spoken.append({"by": _login(made.author), "body": made.body, "at": _time(event.at)})
            elif event.kind != "committed":
                events.append(self._event(event, pull))
        closed = [e for e in state.timeline[number] if e.kind == "closed"]
        found: Data = {
            "number": number, "head": pull.head_ref, "head-commit": self.names[pull.head_oid],
            "base-commit": self.names[state.bases[number]], "author": _login(pull.author), "title": pull.title,
            "body": pull.body, "draft": pull.draft, "labels": list(pull.labels), "created": _time(pull.created_at),
            "updated": _time(pull.updated_at), "mergeable": pull.mergeable, "events": events, "comments": spoken,
        }  # fmt: skip
        if pull.head_repository != self.world.repository.full_name:
            found["head-repository"] = pull.head_repository
        if pull.commit_count is not None and pull.commit_count != len(self.world.commits_of(number)):
            found["commits-told"] = pull.commit_count
        if not pull.open:
            found["state"] = "merged" if pull.merged else "closed"
            found["closed"] = _time(pull.closed_at or pull.updated_at)
            found["closed-by"] = _login(closed[-1].actor) if closed else None
        if pull.body_edited_at is not None:
            found |= {"edited": _time(pull.body_edited_at), "edited-by": _login(pull.editor)}
        return found

    def _event(self, event: model.Event, pull: model.Pull) -> Data:
        found: Data = {"event": event.kind, "by": _login(event.actor), "at": _time(event.at)}
        if event.kind in {"labeled", "unlabeled"}:
            found["label"] = event.detail
        if event.kind == "renamed":
            found |= {"from": "Try it", "to": pull.title}
        return found

    def _run(self, run: model.Run, incident: Incident) -> Data:
        found: Data = {
            "id": run.id, "workflow": run.path.rpartition("/")[2], "event": run.event, "branch": run.head_branch,
            "commit": self.names[run.head_sha], "status": run.status, "actor": _login(run.actor),
            "triggering-actor": _login(run.triggering_actor), "attempt": run.attempt, "created": _time(run.created_at),
            "updated": _time(run.updated_at), "jobs": [self._job(job) for job in self.state.jobs.get(run.id, ())],
        }  # fmt: skip
        if run.display_title:
            found["title"] = run.display_title
        if run.status == "completed":
            found["conclusion"] = run.conclusion
        return found | CANCELS.get(incident.cancels.get(run.id, ""), {})

    @staticmethod
    def _job(job: model.Job) -> Data:
        over = {"conclusion": job.conclusion} if job.status == "completed" else {}
        return {"name": job.name, "status": job.status, **over}


# -- what disturbs


def _before(steps: list[list[Call]]) -> Iterator[list[Call]]:
    done: list[Call] = []
    for calls in steps:
        yield list(done)
        done += calls


def _disturb(scene: Data, played: Played, step: Step, calls: list[Call], before: list[Call]) -> None:
    made = played.made[step.who % len(played.made)]
    if step.deed and made.number is not None and made.final is None and step.at < len(calls):
        route, count = _place(calls[step.at], before, calls, step.at)
        human = {"before": route, "call": count + 1, "do": [_deed(step, made.number, made.branch, played.scene.world)]}
        scene.setdefault("humans", []).append(human)
    if step.spoil is not None and step.bad < len(calls):
        call = calls[step.bad]
        route, count = _place(call, before, calls, step.bad)
        scene.setdefault("faults", []).append({"match": route, "skip": count, **_fault(step.spoil, call)})


def _place(call: Call, before: list[Call], calls: list[Call], index: int) -> tuple[str, int]:
    """Return the request that a call is, and how many such requests come before it."""
    route = _route(call)
    earlier = [one for one in (*before, *calls[:index]) if _route(one) == route]
    pushes = [one for one in (*before, *calls[:index]) if _route(one) == ROUTES["refs.apply"]]
    return route, len(earlier) + (len(pushes) if route == ROUTES["refs.list"] else 0)  # a push lists the refs, too


def _route(call: Call) -> str:
    if call.name == "runs" and any(isinstance(a, tuple) and a[0] == "workflow" and a[1] for a in call.args):
        return WORKFLOW_RUNS
    if call.name == "check_right" and "actions:write" in call.args:
        return DISPATCHES
    if call.name == "refs.apply" and all(one.expected == settle_refs.NO_OID for one in call.args[0]):
        return ROUTES["refs.list"]
    return ROUTES[call.name]


def _deed(step: Step, number: int, branch: str, world: World) -> Data:
    by = world.alice.login
    match step.deed:
        case "push":
            return {"by": by, "push": branch, "files": {"theirs.txt": "mine\n"}}
        case "comment":
            return {"by": None if step.ghost else by, "pull": number, "comment": "hm"}
        case "bot's comment":
            return {"by": world.reviewer.login, "pull": number, "comment": "lint"}
        case "label" | "hand-off":
            label = names.HANDOFF_LABEL if step.deed == "hand-off" else "interesting"
            return {"by": by, "pull": number, "label": label}
        case "rename" | "edit":
            return {"by": by, "pull": number, step.deed: "better"}
        case "un-draft":
            return {"by": by, "pull": number, "ready": True}
        case _:
            return {"by": by, "pull": number, "close": True}


def _fault(spoil: Spoil, call: Call) -> Data:
    match spoil:
        case Spoil.FAIL:
            return {"kind": "status", "status": 502, "times": 1 if call.write else TRIES}
        case Spoil.LOSE:
            return {"kind": "lost-reply"}
        case Spoil.STALE:
            return {"kind": "stale"}
        case Spoil.KILL_BEFORE | Spoil.KILL_AFTER:
            return {"kind": "kill", "variant": "before" if spoil is Spoil.KILL_BEFORE else "after"}
        case Spoil.FORBID:
            return {"kind": "status", "status": 403, "times": None}
        case _:
            return {"kind": "not-found"}


def _record(message: bytes) -> Data | None:
    try:
        found = json.loads(message)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    found.pop("previous", None)
    return found


def _login(account: model.Account | None) -> str | None:
    return account.login if account is not None else None


def _time(at: datetime.datetime) -> str:
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
