"""What the demo tells at its end: the sweep, the selection, the outcomes, the refs that are left, and the cost."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any

import typer

from klaud import names
from klaud.cli import demo_world
from klaud.reports import model, publish, render

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from klaud import fakehub

_KEYS = {names.short_id(names.family_text(demo_world.CONFIG_FILE, key)): key for key in demo_world.FAMILIES}
"""The demo's families by their ids."""

REFS = {
    names.ClaimRef: "claims",
    names.LeaseRef: "leases",
    names.BranchRef: "branches with an agent's work",
    names.SessionRef: "ledgers of sessions",
    names.FamilyRef: "memories of families",
    names.ArchiveRef: "archive copies of what was deleted",
    names.TombstoneRef: "tombstones",
    names.ObservedRef: "memory of the sweeps",
    names.ForerunnerClaimRef: "claims of the forerunner",
    names.ForerunnerLeaseRef: "leases of the forerunner",
}
"""Kinds of refs in words, in the order in which they are told."""

ERRORS_SHOWN = 20
"""Errors of the hub that are shown: the first ones say what the others follow from."""

LOG_SHOWN = 4000
"""Characters of a failed run's own output that are shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """One planner run of the demo. ``first_call``: how many calls the hub had answered before it."""

    run_id: int
    conclusion: str
    first_call: int
    log: str

    @property
    def good(self) -> bool:
        """Tell whether it ended well."""
        return self.conclusion == "success"


def changes(hub: fakehub.Hub, seen: dict[int, tuple[str, str | None]]) -> Iterator[str]:
    """Yield a line for every run whose state changed since the last look."""
    with hub.lock:
        now = {
            run.id: (run.display_title, run.status, run.conclusion)
            for run in hub.repository(demo_world.REPOSITORY).runs.values()
        }
    first = not seen
    for number, (title, status, conclusion) in sorted(now.items()):
        if seen.get(number) != (status, conclusion):
            seen[number] = (status, conclusion)
            if not first or number > demo_world.LAST_RUN:
                yield f"run {number} {_short(title.partition(' [')[0])}: {conclusion or status}"


def log_of(run: Any) -> str:
    """Return the end of what a run's jobs printed."""
    return "\n".join(job.summary for job in run.last.jobs)[-LOG_SHOWN:]


def make(*, hub: fakehub.Hub, out: Path, first: Ran, second: Ran, seconds: float) -> model.Report:
    """Put the demo's report together from what the runs wrote and from the hub's own state."""
    sections = [
        model.Section(title=f"Run {ran.run_id} ended {ran.conclusion}", sentences=(ran.log,))
        for ran in (first, second)
        if not ran.good
    ]
    sections += [
        _recovery(
            _json(out / "recovery-first.json") or _json(out / "recovery.json"),
            "What the dead sessions left, and what became of it",
        ),
        _selection(_json(out / "selection-first.json") or _json(out / "selection.json")),
        _proofs(out),
        _outcomes(hub),
        _sessions(hub),
        _refs(hub),
        _again(hub, second, _json(out / "again" / "recovery.json")),
    ]
    if hub.errors:
        told = (
            f"{len(hub.errors)} calls that it has no route for, or failed at:",
            *hub.errors[:ERRORS_SHOWN],
        )
        sections.append(model.Section(title="Errors of the embedded GitHub", sentences=told))
    sections.append(
        model.Section(
            title="Cost",
            facts=(
                ("seconds", f"{seconds:.0f}"),
                ("calls answered by the embedded GitHub", str(len(hub.log))),
                (
                    "of them git",
                    str(sum("git-" in entry.path or entry.path.endswith("info/refs") for entry in hub.log)),
                ),
            ),
        )
    )
    return model.Report(title="klaud demo: one wave, from start to end", sections=tuple(sections))


def show(report: model.Report, out: Path) -> None:
    """Print the report and write it as markdown and as a page."""
    typer.echo(render.text(report, width=110))
    markdown, page = publish.files(report, out, "demo")
    typer.echo(f"Written: {page} (a browser shows it), {markdown}")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _name(candidate: str) -> str:
    """Return the key of a candidate's family, where the demo knows it, with the start of its subject's id."""
    key = _KEYS.get(names.family_of(candidate))
    return f"{key} {candidate[17:25]}" if key else candidate


def _short(text: str) -> str:
    """Return a line with its long ids as what tells them apart on a screen: names of families, beginnings of oids."""
    named = re.sub(r"[0-9a-f]{16}-[0-9a-f]{16}", lambda m: _name(m[0]), text)
    named = re.sub(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])", lambda m: _KEYS.get(m[0], m[0]), named)
    return re.sub(r"[0-9a-f]{40}", lambda m: m[0][:8], named)


def _recovery(found: Any, title: str) -> model.Section:
    if not found:
        return model.Section(title=title, sentences=("The sweep wrote no report.",))
    rows = []
    for session in found.get("sessions", []):
        done = [str(one).replace("refs/heads/klaud/", "").replace("refs/klaud/", "") for one in session.get("done", [])]
        kept = [f"left: {one['why']}" for one in session.get("decision", []) if one.get("action") == "leave"]
        what = "; ".join(_short(one) for one in (*done, *kept))
        rows.append((_name(str(session["candidate"])), str(session["row"]), str(session["state"]), what))
    return model.Section(
        title=title,
        sentences=("One line for each candidate; row: of the decision table in docs/recovery.md.",),
        tables=(
            model.Table(
                columns=("candidate", "row", "state", "what was done, what was left and why"), rows=tuple(rows)
            ),
        ),
    )


def _selection(found: Any) -> model.Section:
    title = "Which candidates were started, and why the others were not"
    if not found:
        return model.Section(title=title, sentences=("The planner wrote no selection.",))
    rows = tuple(
        (
            str(one["family"]).removeprefix(f"{demo_world.CONFIG_FILE}:"),
            "started" if one["selected"] else f"stopped by {one['gate']}",
            str(one["message"]) if one["selected"] is False else str(one["subject"]),
            str(one["unblock"]),
        )
        for one in found.get("decisions", [])
    )
    columns = ("family", "decision", "what, or why not", "what would unblock it")
    return model.Section(title=title, tables=(model.Table(columns=columns, rows=rows),))


def _proofs(out: Path) -> model.Section:
    """Repeat each started candidate's verdict offline, from its evidence bundle alone."""
    from klaud.baselines import bundle

    rows = []
    for path in sorted(out.glob("baseline-*.json")):
        checked = bundle.check(path.read_bytes())
        verdict = checked.verdict
        commits = sorted({point.commit[:12] for point in verdict.points})
        without = f"too old for {', '.join(verdict.dropped)}: run again without" if verdict.dropped else ""
        rows.append(
            (
                verdict.family.removeprefix(f"{demo_world.CONFIG_FILE}:"),
                f"{verdict.verdict}, {len(verdict.points)} point{'s' if len(verdict.points) != 1 else ''}",
                ", ".join(commits),
                without,
                checked.problem or "repeats with the same bytes",
            )
        )
    columns = ("family", "verdict", "producer's commit", "fallback", "offline check of the bundle")
    return model.Section(
        title="The published numbers, each tied to the matrix of the commit that produced it",
        tables=(model.Table(columns=columns, rows=tuple(rows)),),
    )


def _sessions(hub: fakehub.Hub) -> model.Section:
    rows = []
    with hub.lock:
        for issue in hub.repository(demo_world.REPOSITORY).issues.values():
            if issue.pull is None:
                continue
            state = (
                "draft"
                if issue.pull.draft and issue.state == "open"
                else "ready"
                if issue.state == "open"
                else issue.state
            )
            rows.append((f"#{issue.number}", issue.title, state, ", ".join(sorted(issue.labels))))
    return model.Section(
        title="Pull requests at the end",
        tables=(model.Table(columns=("number", "title", "state", "labels"), rows=tuple(rows)),),
    )


def _outcomes(hub: fakehub.Hub) -> model.Section:
    """Read each ledger's newest outcome where it lies: in the commit messages below its ref."""
    git = hub.git(demo_world.REPOSITORY)
    rows = []
    for ref, oid in sorted(git.refs().items()):
        kind = names.RefNames().parse(ref)
        if not isinstance(kind, names.SessionRef) or kind.wave == demo_world.WAVE:
            continue
        at: str | None = oid
        turns, outcome = 0, None
        while at is not None:
            info = git.commit(at)
            if info is None:
                break
            record = json.loads(info.message)
            turns += record.get("kind") == "turn-ended"
            outcome = outcome or (record if record.get("kind") == "outcome" else None)
            at = info.parents[0] if info.parents else None
        told = outcome or {}
        why = ", ".join(str(told[key]) for key in ("code", "phase") if told.get(key))
        rows.append(
            (
                _name(kind.candidate),
                str(told.get("outcome", "none yet")),
                why,
                str(turns),
                str(told.get("isolation", "")),
            )
        )
    columns = ("candidate", "outcome", "why", "turns", "isolation that was in force")
    return model.Section(title="How the sessions ended", tables=(model.Table(columns=columns, rows=tuple(rows)),))


def _refs(hub: fakehub.Hub) -> model.Section:
    refs = hub.git(demo_world.REPOSITORY).refs()
    counts: collections.Counter[str] = collections.Counter()
    rows = []
    for ref in sorted(refs):
        kind = names.RefNames().parse(ref)
        if isinstance(kind, names.ForeignRef):
            continue
        counts[REFS[type(kind)]] += 1
        if isinstance(
            kind, (names.ClaimRef, names.LeaseRef, names.BranchRef, names.ForerunnerClaimRef, names.ForerunnerLeaseRef)
        ):
            rows.append((ref, _owner(hub, kind)))
    return model.Section(
        title="klaud's refs at the end",
        facts=tuple(
            (word, str(counts[word])) for word in REFS.values() if counts[word] or word in {"claims", "leases"}
        ),
        tables=(
            model.Table(
                title="Claims, leases and branches, each with its owner",
                columns=("ref", "owner"),
                rows=tuple(rows),
            ),
        ),
    )


def _owner(hub: fakehub.Hub, kind: names.KlaudRef) -> str:
    if isinstance(kind, names.BranchRef):
        head = names.branch(kind.candidate)
        with hub.lock:
            for issue in hub.repository(demo_world.REPOSITORY).issues.values():
                if issue.pull is not None and issue.pull.head_ref == head and issue.state == "open":
                    return f"open pull request #{issue.number}"
    return "NONE"


def _again(hub: fakehub.Hub, second: Ran, found: Any) -> model.Section:
    mine = [entry for entry in hub.log[second.first_call + 1 :] if entry.account == demo_world.BOT]
    writes = [f"{entry.method} {entry.path}" for entry in mine if entry.write]
    return model.Section(
        title="The second recovery",
        sentences=(
            f"It wrote: {', '.join(writes)}."
            if writes
            else "It found nothing to do and wrote nothing."
            if found
            else "It wrote nothing, not even a report.",
        ),
        facts=(
            ("requests", str(sum(not entry.path.endswith(("info/refs", "upload-pack")) for entry in mine))),
            ("writes", str(len(writes))),
        ),
    )
