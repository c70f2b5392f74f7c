"""From one sight to one plan: every verdict, what stops the sweep, the drain limit, the budget, and what to remember.

Pure. ``wanted`` says what must be read before the rules can decide; the loop reads it and asks again. ``stop`` compares
what was read with itself: where inputs contradict each other, nothing is written.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from klaud import names
from klaud.github import model as github
from klaud.leases import model as leases
from klaud.recovery import decide, decide_cases, decide_facts, model, rules_liveness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MANY = 3
"""So many of a kind that must exist and are all missing is a broken read, not a coincidence."""

CLOSE_REQUESTS = 5
"""Requests to close one draft, at worst: runs on its head, comment, close, and two re-reads."""
CANCEL_REQUESTS = 4
"""Requests to end one run, at worst: cancel, verify, force, verify."""
REOPEN_REQUESTS = 2
"""Requests to reopen one draft: a re-read and the write."""
RIGHT_REQUESTS = 2
"""Requests that ask for the rights of a sweep that will write: one for pull requests, one for runs."""
CARD_REQUESTS = 2
"""Requests to write one hand-over card: a re-read and the comment."""
FINISH_REQUESTS = 30
"""Requests of one session's ``finish``, at worst: evidence, report, labels, draft state, cancels."""
BASE_REQUESTS = 6 + RIGHT_REQUESTS
"""Requests that acting costs whatever it does: the rights, the last listing of klaud's runs and the first re-read."""


def heads_wanted(snapshot: leases.Snapshot) -> tuple[str, ...]:
    """Return the branches whose pull requests must be read: those that exist, and those of sessions that are not settled."""
    candidates = set(decide_cases.branches(snapshot))
    for claim in snapshot.claims.values():
        if isinstance(claim, leases.Held) and isinstance(claim.record, leases.Claim):
            candidates.add(claim.record.candidate)
    for ledger in snapshot.ledgers.values():
        if isinstance(ledger, leases.Ledger) and not decide_cases.is_settled(ledger):
            candidates.add(ledger.ref[-len("0123456789abcdef-0123456789abcdef") :])
    for record in snapshot.forerunner:
        if isinstance(record, leases.Forerunner) and record.kind == "claim":
            name = record.ref.rpartition("/")[2].partition("-")[2]
            candidates.update((record.candidate, name))
    return tuple(names.branch(c) for c in sorted(candidates) if names.is_candidate(c))


class Thinking:
    """The rules applied to one sight: cases, their facts, their verdicts."""

    def __init__(self, sight: model.Sight, setting: model.Setting, policy: model.Policy) -> None:
        """Sort the sight and decide every case."""
        self.sight = sight
        self.setting = setting
        self.policy = policy
        self.index = decide_cases.Index.of_sight(sight, setting)
        self.cases = decide_cases.cases(sight, self.index)
        self.facts = {c.key: decide_facts.facts(c, sight, self.index, policy) for c in self.cases}
        self.verdicts = tuple(decide.decide_case(self.facts[c.key]) for c in self.cases)

    # -- what is still to be read
    def wanted(self) -> model.Wanted:
        """Return what the rules would decide on and have not read."""
        runs: set[int] = set()
        jobs: set[int] = set()
        numbers: set[int] = set()
        heads: set[str] = set()
        evidence: list[model.FinalRun] = []
        for verdict in self.verdicts:
            case, facts = verdict.case, self.facts[verdict.case.key]
            if verdict.row == "1":
                continue
            runs |= self._unread_runs(case)
            jobs |= self._unread_jobs(case)
            if case.ledger is not None and not decide_cases.is_settled(case.ledger):
                have = {d.pull.number for d in case.pulls} | set(self.sight.numbered)
                numbers |= decide_cases.numbers_of(case.ledger) - have
            if verdict.row in {"8", "9", "10", "13"} and facts.pull is not None:
                heads.add(facts.pull.head_oid)
            match verdict.row, facts.pull, facts.newest_final:
                case "9", github.Pull(number=number, head_oid=head), github.Run(id=final):
                    evidence.append(
                        model.FinalRun(wave=case.wave, candidate=case.candidate, number=number, head=head, run_id=final)
                    )
        heads.update(close.head for close in self._next_closures())
        for run_id, job in self._leases():
            if job and self._jobs_may_tell(run_id):
                jobs.add(run_id)
            elif run_id not in self.index.by_id and run_id > 0:
                runs.add(run_id)
        heads -= set(self.sight.head_runs)
        return model.Wanted(
            runs=frozenset(runs),
            jobs=frozenset(jobs - set(self.sight.jobs)),
            numbers=frozenset(numbers),
            head_runs=frozenset(heads if not runs else ()),
            evidence=tuple(f for f in evidence if f.run_id not in self.sight.evidence and not runs and not heads),
        )

    def _next_closures(self) -> list[model.CloseDraft]:
        """Return the closures that this sweep has room for: only their heads are worth a request each."""
        order = sorted((v for v in self.verdicts if closes(v)), key=_opened)[: self.policy.max_closures]
        return [a for v in order for a in v.actions if isinstance(a, model.CloseDraft)]

    def _unread_runs(self, case: model.Case) -> set[int]:
        ids, planner = rules_liveness.session_runs(case, self.index)
        wanted = {*ids, *rules_liveness.waits_on(case), *(r.planner_run for r in case.forerunner)}
        if planner is not None:
            wanted.add(planner)
        return {run_id for run_id in wanted if run_id not in self.index.by_id and run_id > 0}

    def _unread_jobs(self, case: model.Case) -> set[int]:
        wanted = {run.id for run in rules_liveness.suspects(case, self.sight, self.index, self.policy)}
        wanted.update(r.planner_run for r in case.forerunner if r.job and self._jobs_may_tell(r.planner_run))
        return wanted

    def _jobs_may_tell(self, run_id: int) -> bool:
        """Tell whether a run was read and is not over, so that only its jobs can show the end of one of them."""
        state = rules_liveness.of_run(run_id, self.sight, self.index)
        return isinstance(state, model.Alive) and isinstance(self.index.by_id.get(run_id), github.Run)

    def _leases(self) -> Iterable[tuple[int, str]]:
        for lease in self.sight.snapshot.leases.values():
            if isinstance(lease, leases.Held) and isinstance(lease.record, leases.Lease):
                yield lease.record.holder.run_id, lease.record.holder.job
        for record in self.sight.snapshot.forerunner:
            if isinstance(record, leases.Forerunner) and record.kind == "lease":
                yield record.planner_run, ""

    # -- the plan
    def plan(self, remaining: int | None) -> model.Plan:
        """Return the whole plan; ``remaining`` is what is left of the rate limit, None where nobody said."""
        stop = self.stop()
        verdicts = [*self.verdicts, *self._lease_verdicts()]
        counts = self._counts(verdicts)
        verdicts = [self._heads_read(v) for v in _drained(verdicts, self.policy.max_closures)]
        verdicts, cost = _within_budget(verdicts, remaining, self.policy.reserve)
        known = rules_liveness.zombies(self.sight)
        still = tuple(sorted(z for z in known if self._still_unfinished(z)))
        return model.Plan(verdicts=tuple(verdicts), stop=stop, requests=cost, counts=counts, zombies=still)

    def _heads_read(self, verdict: model.Verdict) -> model.Verdict:
        """Put off closing a draft at whose head the runs were not read, or not all: a person's may be among them."""
        close = next((a for a in verdict.actions if isinstance(a, model.CloseDraft)), None)
        if close is None:
            return verdict
        seen = self.sight.head_runs.get(close.head)
        match seen:
            case github.Listing(complete=True):
                return verdict
            case None:
                return _put_off(verdict, "drain", f"the runs at its head {close.head[:12]} are not read in this sweep")
            case github.Listing(why_not=why) | model.Unread(why=why):
                what = f"runs at its head {close.head[:12]}: {why}"
                leave = model.Leave(why=what, code="error")
                state = f"not read: {what}"
                return msgspec.structs.replace(verdict, row="1b", state=state, actions=(leave,), blocks=True)
            case _:
                assert_never(seen)

    def _still_unfinished(self, run_id: int) -> bool:
        run = self.index.by_id.get(run_id)
        return not (isinstance(run, github.Missing) or (isinstance(run, github.Run) and run.status == "completed"))

    def _lease_verdicts(self) -> list[model.Verdict]:
        found: list[model.Verdict] = []
        taken = {a.ref for v in self.verdicts for a in v.actions if isinstance(a, model.TakeOverLease)}
        for case in self.cases:
            match case.lease:
                case leases.Held(ref, oid, leases.Lease() as lease) if ref not in taken:
                    found.append(_of_lease(case, ref, oid, rules_liveness.of_lease(lease, self.sight, self.index)))
        for record in self.sight.snapshot.forerunner:
            if isinstance(record, leases.Forerunner) and record.kind == "lease":
                name = record.ref.rpartition("/")[2]
                case = model.Case(key=f"forerunner/{name}", wave="", candidate="", family="")
                live = rules_liveness.of_run(record.planner_run, self.sight, self.index)
                found.append(_of_lease(case, record.ref, record.oid, live))
        return found

    def _counts(self, verdicts: Iterable[model.Verdict]) -> tuple[leases.Count, ...]:
        before = decide_facts.counts_of(self.sight)
        again = decide_facts.is_recent(self.sight, self.policy)
        found = []
        for verdict in verdicts:
            if verdict.waits:
                seen = before.get(verdict.case.key, {}).get(verdict.row, 0)
                step = 0 if again and seen else 1
                found.append(leases.Count(session=verdict.case.key, row=verdict.row, sweeps=seen + step))
            elif verdict.row == "9" and before.get(verdict.case.key, {}).get("9", 0) >= self.policy.evidence_sweeps:
                past = self.policy.evidence_sweeps + 1  # past the limit for good, also when this sweep is not counted
                found.append(leases.Count(session=verdict.case.key, row="9", sweeps=past))
        return tuple(sorted(found, key=lambda c: (c.session, c.row)))

    # -- what stops a sweep
    def stop(self) -> model.Stop | None:
        """Return why nothing may be written, None where the inputs agree with each other."""
        for check in (self._own_unseen, self._runs_contradict, self._pulls_contradict, self._all_missing):
            for why in check():
                return model.Stop(why=why)
        return None

    def _own_unseen(self) -> Iterator[str]:
        sight = self.sight
        match sight.own, sight.planners:
            case github.Missing(), _:
                run_id = sight.me.run_id if sight.me else 0
                yield f"our own run {run_id} answers 404: this token cannot prove any run gone"
            case model.Unread(what, why), _:
                yield f"our own run could not be read ({what}: {why})"
            case github.Run(id=own) as seen, github.Listing(items, complete=True) if own not in {r.id for r in items}:
                yield f"the listing of {decide_cases.workflow_of(seen)} does not have our own run {own}"
            case _:
                pass

    def _runs_contradict(self) -> Iterator[str]:
        listing, since = self.sight.listing, self.sight.listing_since
        if not isinstance(listing, github.Listing) or not listing.complete or since is None:
            return
        listed = {run.id for run in listing.items}
        for run in self.index.runs(sorted(self.sight.runs)):
            login = run.actor.login if run.actor else ""
            if (
                login == self.setting.login
                and run.created_at > since
                and run.id not in listed
                and (not listed or run.id < max(listed))
            ):
                yield f"run {run.id} of klaud's exists by its id and is not in the listing of klaud's runs"

    def _pulls_contradict(self) -> Iterator[str]:
        for number, seen in self.sight.numbered.items():
            if not isinstance(seen, github.PullDetail):
                continue
            head = seen.pull.head_ref
            listing = self.sight.heads.get(head)
            whole = isinstance(listing, github.Listing) and listing.complete
            if whole and seen.pull.head_repository == self.setting.repository:
                yield f"pull request {number} exists by its number and is not among those of its head {head}"

    def _all_missing(self) -> Iterator[str]:
        runs = [r for r in self.sight.runs.values() if not isinstance(r, model.Unread)]
        listed = isinstance(self.sight.listing, github.Listing) and self.sight.listing.items
        if len(runs) >= MANY and not listed and all(isinstance(r, github.Missing) for r in runs):
            yield f"all {len(runs)} runs on record answer 404, and no run of klaud's is listed"
        named = [n for case in self.cases if case.ledger for n in decide_cases.numbers_of(case.ledger)]
        found = any(isinstance(p, github.Listing) and p.items for p in self.sight.heads.values())
        numbered = [self.sight.numbered[n] for n in named if n in self.sight.numbered]
        if len(numbered) >= MANY and not found and all(isinstance(n, github.Missing) for n in numbered):
            yield f"all {len(numbered)} pull requests on record answer 404, and no head has one"


def _of_lease(case: model.Case, ref: str, oid: str, live: model.Liveness) -> model.Verdict:
    match live:
        case model.Gone(proof=proof):
            action: model.Action = model.DeleteRef(
                why="the pass that held this lease is over", evidence=(proof,), ref=ref, oid=oid
            )
            state = f"lease of a pass that is over: {proof}"
        case model.Alive(fact):
            action = model.Leave(why=fact, code="in-hand")
            state = f"lease of a live pass: {fact}"
        case model.Unknown(unread):
            action = model.Leave(why=f"{unread.what}: {unread.why}", code="error")
            state = f"lease of an unknown pass: {unread.what}"
        case model.Zombie(run_id):
            action = model.Leave(why=f"run {run_id} is a zombie", code="in-hand", person="GitHub's support, or nobody")
            state = f"lease of a zombie: run {run_id}"
        case _:
            assert_never(live)
    return model.Verdict(case=case, row="lease", state=state, actions=(action,))


def rights(verdicts: Iterable[model.Verdict]) -> tuple[model.Right, ...]:
    """Return the rights that carrying out these verdicts takes, in the order in which they are asked for."""
    found: set[model.Right] = set()
    for action in (a for v in verdicts for a in v.actions):
        match action:
            case model.Leave() | model.Continue():
                continue
            case model.CloseDraft() | model.ReopenDraft() | model.WriteCard():
                found.add("pulls:write")
            case model.CancelRun():
                found.add("actions:write")
            case model.Finish():
                found |= {"pulls:write", "actions:write"}
            case _:
                pass
        found.add("contents:write")
    return tuple(right for right in model.RIGHTS if right in found)


def closes(verdict: model.Verdict) -> bool:
    """Tell whether a verdict may close a draft."""
    return any(
        isinstance(a, model.CloseDraft)
        or (isinstance(a, model.Finish) and a.as_ != "validated" and a.number is not None)
        for a in verdict.actions
    )


def _opened(verdict: model.Verdict) -> tuple[datetime.datetime, str]:
    times = [d.pull.created_at for d in verdict.case.pulls]
    return max(times, default=datetime.datetime.min.replace(tzinfo=datetime.UTC)), verdict.case.key


def _drained(verdicts: list[model.Verdict], most: int) -> list[model.Verdict]:
    """Keep the closures of the ``most`` oldest drafts; the others wait, whole, for the next sweep."""
    order = sorted((v for v in verdicts if closes(v)), key=_opened)
    later = {v.case.key for v in order[most:]}
    return [
        _put_off(v, "drain", f"{most} drafts are closed in one sweep at most, oldest first")
        if v.case.key in later and closes(v)
        else v
        for v in verdicts
    ]


def _put_off(verdict: model.Verdict, code: Literal["drain", "budget"], why: str) -> model.Verdict:
    leave = model.Leave(why=why, code=code)
    return msgspec.structs.replace(verdict, actions=(leave,))


def cost(verdict: model.Verdict) -> int:
    """Return how many API requests a verdict needs at worst; pushes are not requests."""
    total = 0
    for action in verdict.actions:
        match action:
            case model.CloseDraft():
                total += CLOSE_REQUESTS
            case model.ReopenDraft():
                total += REOPEN_REQUESTS
            case model.CancelRun():
                total += CANCEL_REQUESTS
            case model.WriteCard():
                total += CARD_REQUESTS
            case model.Finish():
                total += FINISH_REQUESTS
            case _:
                pass
    return total


def _within_budget(
    verdicts: list[model.Verdict], remaining: int | None, reserve: int
) -> tuple[list[model.Verdict], int]:
    """Put off what the rate limit has no room for. First come cancels, then what closes no draft, then closures by age."""
    total = sum(cost(v) for v in verdicts)
    worst = total + BASE_REQUESTS if total else 0
    if remaining is None:
        return verdicts, worst
    room = remaining - reserve - BASE_REQUESTS
    keep: dict[int, model.Verdict] = {}
    order = sorted(
        range(len(verdicts)),
        key=lambda i: (closes(verdicts[i]), cost(verdicts[i]) > CANCEL_REQUESTS, _opened(verdicts[i])),
    )
    for i in order:
        need = cost(verdicts[i])
        if need and need > room:
            keep[i] = _put_off(
                verdicts[i], "budget", f"the rate limit's remainder of {remaining} leaves no room above {reserve}"
            )
        else:
            room -= need
            keep[i] = verdicts[i]
    return [keep[i] for i in range(len(verdicts))], worst
