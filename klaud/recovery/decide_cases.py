"""Which sessions there are, and which of what was seen belongs to each: refs, pull requests and runs sorted into cases.

A session is known from a claim, a ledger, a lease, a branch ``klaud/auto-<candidate>``, a pull request on one, a record of
the forerunner, or a run of klaud's on such a branch. Where one candidate had several sessions, branch and unnamed pull
requests belong to the one that holds the claim, else to the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import model

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Index:
    """Runs by id, branch, head and marker; a read by id is newer than a listing and wins."""

    def __init__(
        self, runs: Mapping[int, model.RunSeen], setting: model.Setting, own: model.RunSeen | None = None
    ) -> None:
        """Sort runs; ``own`` is the sweep's own, whose start is the least that GitHub's clock can show."""
        self.setting = setting
        self.by_id: dict[int, model.RunSeen] = dict(runs)
        if isinstance(own, github.Run):
            self.by_id[own.id] = own
        self.by_branch: dict[str, list[github.Run]] = {}
        self.by_head: dict[str, list[github.Run]] = {}
        self.by_session: dict[str, list[github.Run]] = {}
        self.now = own.created_at if isinstance(own, github.Run) else None
        for run in self.by_id.values():
            if isinstance(run, github.Run):
                self._add(run)

    @classmethod
    def of_sight(cls, sight: model.Sight, setting: model.Setting) -> Index:
        """Sort every run that a sweep has seen."""
        seen: dict[int, model.RunSeen] = {}
        for listing in (sight.planners, sight.listing, *sight.head_runs.values()):
            if isinstance(listing, github.Listing):
                seen.update((run.id, run) for run in listing.items)
        return cls({**seen, **sight.runs}, setting, sight.own)

    def _add(self, run: github.Run) -> None:
        if run.head_branch is not None:
            self.by_branch.setdefault(run.head_branch, []).append(run)
        self.by_head.setdefault(run.head_sha, []).append(run)
        marker = marker_of(run.display_title)
        checks = self.setting.smoke_workflows | self.setting.final_workflows
        if marker and is_klaud(run.actor, self.setting) and workflow_of(run) not in checks:
            self.by_session.setdefault(marker, []).append(run)
        self.now = run.updated_at if self.now is None else max(self.now, run.updated_at)

    def runs(self, ids: Iterable[int]) -> Iterator[github.Run]:
        """Yield the runs that were read in full."""
        for run_id in ids:
            run = self.by_id.get(run_id)
            if isinstance(run, github.Run):
                yield run


def marker_of(title: str) -> str:
    """Return ``<wave>-<candidate>`` from a run name that ends in klaud's marker, else empty."""
    head, found, rest = title.rpartition("[klaud ")
    del head
    return rest[:-1] if found and rest.endswith("]") else ""


def is_klaud(account: github.Account | None, setting: model.Setting) -> bool:
    """Tell whether an account is klaud's, by exact id."""
    return account is not None and account.id == setting.bot


def workflow_of(run: github.Run) -> str:
    """Return the file name of a run's workflow (GitHub may append ``@ref``)."""
    return run.path.partition("@")[0].rpartition("/")[2]


# -- what a ledger says


def started(ledger: leases.Ledger) -> leases.SessionStarted | None:
    """Return the ledger's first record where it is what it must be."""
    first = ledger.records[0] if ledger.records else None
    return first if isinstance(first, leases.SessionStarted) else None


def holder(ledger: leases.Ledger) -> leases.Holder | None:
    """Return the newest run that worked on the session."""
    found: leases.Holder | None = None
    for record in ledger.records:
        if isinstance(record, (leases.SessionStarted, leases.Continued)):
            found = record.holder
    return found


def parked(ledger: leases.Ledger) -> leases.Parked | None:
    """Return the park that the session is in, None where it went on or never parked."""
    found: leases.Parked | None = None
    for record in ledger.records:
        if isinstance(record, leases.Parked):
            found = record
        elif isinstance(record, (leases.Continued, leases.SessionStarted)):
            found = None
    return found


def outcome(ledger: leases.Ledger) -> leases.Outcome | None:
    """Return the newest outcome."""
    return next((r for r in reversed(ledger.records) if isinstance(r, leases.Outcome)), None)


def pending(ledger: leases.Ledger) -> tuple[str, ...]:
    """Return the clean-up effects of the newest outcome that no later record says are done."""
    done: set[str] = set()
    for record in reversed(ledger.records):
        match record:
            case leases.Outcome():
                return tuple(e for e in record.pending if e not in done)
            case leases.Effected(result="done" | "found"):
                done.add(record.effect)
            case _:
                pass
    return ()


def own_oids(ledger: leases.Ledger) -> frozenset[str]:
    """Return every commit that the session recorded as its own before it pushed, and the base it started from."""
    oids: set[str] = set()
    for record in ledger.records:
        match record:
            case leases.SessionStarted():
                oids.add(record.base)
            case leases.Intent(effect="push-work" | "create-branch"):
                oids.update(record.oids)
            case leases.Effected(effect="push-work" | "create-branch"):
                oids.add(record.oid)
            case _:
                pass
    return frozenset(oids - {""})


def numbers_of(ledger: leases.Ledger) -> frozenset[int]:
    """Return the pull requests that the ledger names."""
    found: set[int] = set()
    for record in ledger.records:
        if isinstance(record, (leases.Intent, leases.Effected, leases.Outcome)) and record.number is not None:
            found.add(record.number)
    return frozenset(found)


def copied_oids(ledger: leases.Ledger) -> frozenset[str]:
    """Return the heads of the branch that were archived, by the ledger."""
    found: set[str] = set()
    for record in ledger.records:
        match record:
            case leases.Effected(effect="archive-branch", oid=oid) | leases.Outcome(head=oid):
                found.add(oid)
            case leases.Intent(effect="archive-branch", oids=oids):
                found.update(oids)
            case _:
                pass
    return frozenset(found - {""})


def copies(case: model.Case, snapshot: leases.Snapshot, prefix: str) -> dict[str, str]:
    """Return the archive copies (ref -> oid) of a session's branch that no other session's ledger names too."""
    if case.ledger is None:
        return {}
    others: set[str] = set()
    for ref, ledger in snapshot.ledgers.items():
        if ref != case.ledger.ref and ref.endswith(f"-{case.candidate}"):
            if not isinstance(ledger, leases.Ledger):
                return {}
            others |= copied_oids(ledger)
    ref_names = names.RefNames(prefix)
    wanted = {
        ref_names.archive("branch", f"auto-{case.candidate}", oid): oid for oid in copied_oids(case.ledger) - others
    }
    return {ref: oid for ref, oid in sorted(wanted.items()) if snapshot.archives.get(ref) == oid}


def run_ids(ledger: leases.Ledger) -> frozenset[int]:
    """Return the smoke and final runs that the ledger names."""
    found: set[int] = set()
    for record in ledger.records:
        if isinstance(record, leases.Effected) and record.run_id is not None:
            found.add(record.run_id)
        elif isinstance(record, leases.Parked):
            found.update(record.on)
    return frozenset(found)


def is_buried(ledger: leases.Ledger) -> bool:
    """Tell whether recovery wrote the outcome: it does so only after it has proven the session's end."""
    last = outcome(ledger)
    return last is not None and last.by == "recovery" and isinstance(ledger.records[-1], leases.Outcome)


def is_settled(ledger: leases.Ledger) -> bool:
    """Tell whether the ledger has an outcome with nothing left to do."""
    return outcome(ledger) is not None and not pending(ledger)


def card_due(ledger: leases.Ledger, detail: github.PullDetail, setting: model.Setting) -> bool:
    """Tell whether a handed-off draft of klaud's still lacks its card: nothing was said, or meant to be, since the label.

    An intent counts whatever became of it: a card is written once for each time that the label is set, or not at all.
    """
    if not detail.timeline.complete or not is_klaud(detail.pull.author, setting):
        return False
    events = detail.timeline.items
    marks = [e for e in events if e.kind in {"labeled", "unlabeled"} and e.detail == names.HANDOFF_LABEL]
    if not marks or marks[-1].kind != "labeled":
        return False
    if any(e.kind == "commented" and is_klaud(e.actor, setting) and e.at >= marks[-1].at for e in events):
        return False
    since = max((e.at for e in marks if e.kind == "unlabeled"), default=None)
    return not any(
        isinstance(r, leases.Intent)
        and (r.effect, r.label) == ("comment", names.HANDOFF_LABEL)
        and (since is None or r.at >= since)
        for r in ledger.records
    )


# -- the cases


def branches(snapshot: leases.Snapshot) -> dict[str, str]:
    """Return klaud's branches: candidate -> oid."""
    return {name.rpartition("/")[2].removeprefix("auto-"): oid for name, oid in snapshot.branches.items()}


def cases(sight: model.Sight, index: Index) -> tuple[model.Case, ...]:
    """Return every session, sorted by key; leases are part of the sessions they are on."""
    found = _from_records(sight.snapshot)
    _add_forerunner(sight.snapshot, found)
    fresh = _newest(found)
    for candidate in _loose_candidates(sight, index):
        if candidate not in fresh:
            case = model.Case(key=candidate, wave="", candidate=candidate, family=names.family_of(candidate))
            found[case.key] = case
            fresh[candidate] = case.key
    _spread_bad_claims(found)
    stray = _stray_runs(index)
    named = _named(found)
    complete = []
    for key in sorted(found):
        case = msgspec.structs.replace(found[key], fresh=fresh.get(found[key].candidate) == key)
        complete.append(_with_objects(case, sight, stray, named.get(case.candidate, {})))
    return tuple(complete)


class _Found:
    """Cases as they are put together, by key."""

    def __init__(self) -> None:
        self.cases: dict[str, model.Case] = {}

    def change(self, key: str, wave: str, candidate: str, **fields: object) -> None:
        family = names.family_of(candidate)
        case = self.cases.get(key) or model.Case(key=key, wave=wave, candidate=candidate, family=family)
        if case.bad:
            fields.pop("bad", None)
        self.cases[key] = msgspec.structs.replace(case, **fields)

    def spoil(
        self, key: str, wave: str, candidate: str, thing: leases.Quarantined | leases.Newer | leases.Held, kind: str
    ) -> None:
        match thing:
            case leases.Newer():
                self.change(
                    key, wave, candidate, newer=True, bad=f"a newer klaud wrote the {kind} (version {thing.version})"
                )
            case leases.Quarantined():
                self.change(key, wave, candidate, bad=f"{kind}: {thing.why}")
            case leases.Held():
                self.change(key, wave, candidate, bad=f"the {kind}'s record is of another kind")
            case _:
                assert_never(thing)


def _from_records(snapshot: leases.Snapshot) -> dict[str, model.Case]:
    found = _Found()
    for name, claim in snapshot.claims.items():
        family = name.rpartition("/")[2]
        if isinstance(claim, leases.Held) and isinstance(claim.record, leases.Claim):
            record = claim.record
            key = f"{record.wave}-{record.candidate}"
            found.change(key, record.wave, record.candidate, claim=claim)
            if names.family_of(record.candidate) != family or family not in {
                record.family,
                names.short_id(record.family),
            }:
                found.change(key, record.wave, record.candidate, bad="the claim names another family", family=family)
        else:
            found.spoil(f"claims/{family}", "", "", claim, "claim")
            found.change(f"claims/{family}", "", "", family=family)
    for ref, ledger in snapshot.ledgers.items():
        session = _session_of(ref)
        if isinstance(ledger, leases.Ledger):
            found.change(*session, ledger=ledger)
            first = started(ledger)
            if first is None or (first.wave, first.candidate) != session[1:]:
                found.change(*session, bad="the ledger's first record is not this session's start")
        else:
            found.spoil(*session, ledger, "ledger")
    for ref, lease in snapshot.leases.items():
        session = _session_of(ref)
        if isinstance(lease, leases.Held) and isinstance(lease.record, leases.Lease):
            found.change(*session, lease=lease)
        else:
            found.spoil(*session, lease, "lease")
    return found.cases


def _spread_bad_claims(found: dict[str, model.Case]) -> None:
    """Judge no session of a family whose claim cannot be read: it may name any of them."""
    bad = {case.family: case for case in found.values() if case.key.startswith("claims/")}
    for key, case in found.items():
        claim = bad.get(case.family)
        if claim is not None and not case.bad and not (case.ledger and is_settled(case.ledger)):
            found[key] = msgspec.structs.replace(case, bad=f"its family's {claim.bad}", newer=claim.newer)


def _session_of(ref: str) -> tuple[str, str, str]:
    key = ref.rpartition("/")[2]
    return key, key[: -len("-0123456789abcdef-0123456789abcdef")], key[-len("0123456789abcdef-0123456789abcdef") :]


def _add_forerunner(snapshot: leases.Snapshot, found: dict[str, model.Case]) -> None:
    newest = _newest(found)
    for record in snapshot.forerunner:
        name = record.ref.rpartition("/")[2].partition("-")[2]
        if isinstance(record, leases.Quarantined):
            key = f"forerunner/{record.ref.rpartition('/')[2]}"
            candidate = name if names.is_candidate(name) else ""
            family = names.family_of(candidate)
            found[key] = model.Case(key=key, wave="", candidate=candidate, family=family, bad=record.why)
            continue
        if record.kind == "lease":
            continue
        candidate = next((c for c in (record.candidate, name) if names.is_candidate(c)), "")
        key = newest.get(candidate) or candidate or f"forerunner/{name}"
        family = names.family_of(candidate)
        case = found.get(key) or model.Case(key=key, wave="", candidate=candidate, family=family)
        found[key] = msgspec.structs.replace(case, forerunner=(*case.forerunner, record))


def _newest(found: dict[str, model.Case]) -> dict[str, str]:
    known = (c for c in found.values() if c.candidate and not c.key.startswith("forerunner/"))
    return {case.candidate: case.key for case in sorted(known, key=_age)}


def _age(case: model.Case) -> tuple[bool, tuple[int, ...], str, str]:
    """Return what orders a candidate's sessions: who holds the claim, the planner's run and attempt, the time, the name."""
    run, _, attempt = case.wave.partition(".")
    at = case.ledger.records[0].at.isoformat() if case.ledger and case.ledger.records else ""
    numbers = (int(run), int(attempt)) if attempt and names.is_wave(case.wave) else ()
    return (case.claim is not None, numbers, at, case.wave)


def _loose_candidates(sight: model.Sight, index: Index) -> list[str]:
    found = set(branches(sight.snapshot))
    for head, pulls in sight.heads.items():
        candidate = names.candidate_of_branch(head)
        if candidate and isinstance(pulls, github.Listing) and any(d.pull.open for d in pulls.items):
            found.add(candidate)
    found.update(_stray_runs(index))
    return sorted(found)


def _stray_runs(index: Index) -> dict[str, tuple[github.Run, ...]]:
    """Unfinished runs that klaud started on its own branches, by candidate; sessions and final runs are not strays."""
    found: dict[str, tuple[github.Run, ...]] = {}
    for branch, runs in index.by_branch.items():
        candidate = names.candidate_of_branch(branch)
        if candidate is None:
            continue
        mine = tuple(run for run in runs if is_smoke(run, index.setting))
        if mine:
            found[candidate] = tuple(sorted(mine, key=lambda r: r.id))
    return found


def is_smoke(run: github.Run, setting: model.Setting) -> bool:
    """Tell whether a run is an unfinished check that klaud alone started: neither a session nor a final run."""
    return (
        run.status != "completed"
        and is_klaud(run.actor, setting)
        and is_klaud(run.triggering_actor, setting)
        and workflow_of(run) not in setting.final_workflows
        and workflow_of(run) != setting.candidate_workflow
        and (workflow_of(run) in setting.smoke_workflows or not marker_of(run.display_title))
    )


def _named(found: dict[str, model.Case]) -> dict[str, dict[str, frozenset[int]]]:
    """Return, for each candidate, which of its sessions' ledgers names which pull requests."""
    named: dict[str, dict[str, frozenset[int]]] = {}
    for case in found.values():
        if case.ledger is not None:
            named.setdefault(case.candidate, {})[case.key] = numbers_of(case.ledger)
    return named


def _with_objects(
    case: model.Case,
    sight: model.Sight,
    stray: dict[str, tuple[github.Run, ...]],
    numbers: dict[str, frozenset[int]],
) -> model.Case:
    if not case.candidate:
        return case
    named = numbers.get(case.key, frozenset())
    pulls: dict[int, github.PullDetail] = {}
    unread: list[model.Unread] = []
    head = names.branch(case.candidate)
    listing = sight.heads.get(head)
    if isinstance(listing, model.Unread):
        unread.append(listing)
    elif listing is not None:
        if not listing.complete:
            unread.append(model.Unread(f"pull requests of {head}", listing.why_not or "the listing is incomplete"))
        taken = frozenset[int]().union(*numbers.values())
        for detail in listing.items:
            number = detail.pull.number
            if number in named or (case.fresh and number not in taken):
                pulls[number] = detail
    for number in sorted(named - set(pulls)):
        seen = sight.numbered.get(number)
        if isinstance(seen, model.Unread):
            unread.append(seen)
        elif isinstance(seen, github.PullDetail) and seen.pull.head_ref == head and seen.pull.head_repository:
            pulls[number] = seen
    return msgspec.structs.replace(
        case,
        branch=branches(sight.snapshot).get(case.candidate) if case.fresh else None,
        pulls=tuple(pulls[n] for n in sorted(pulls)),
        unread=tuple(unread),
        stray_runs=stray.get(case.candidate, ()) if case.fresh else (),
    )
