"""Which candidates a wave looks at, in which order, and which it does not look at and why.

Offers of the sources are joined with the families that the current generator can produce. Whatever blocks a family (a
claim, an open pull request on its branch, a session that recovery still has in hand, a pause, a cool-down) or a candidate
(a tombstone) is said with what would unblock it. Order: least recently tried first; equals are shuffled by the seed, so
that the same inputs give the same plan and no family starves.

A failed source offers nothing and takes nothing away; a family without a matrix is reported and hides no other.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import names
from klaud.planner import model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One family at the base commit: the entries that its generator gave, or why there are none (``code``).

    ``defaults``: what each candidate's change says unless its offer says otherwise.
    """

    benchmark: str
    family: str
    kind: model.Kind = "upgrade"
    entries: tuple[dict[str, Any], ...] = ()
    code: str = ""
    message: str = ""
    inputs: str = ""
    targets: tuple[str, ...] = ()
    defaults: dict[str, Any] = {}


class SourceRead(msgspec.Struct, frozen=True, kw_only=True):
    """What one source gave. ``refused`` counts lines that are no offers; a failed source has a ``code`` and no offers."""

    benchmark: str
    source: str
    offers: tuple[model.Offer, ...] = ()
    refused: int = 0
    examples: tuple[str, ...] = ()
    code: str = ""
    message: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What may block a family at one time: what refs remember, and what recovery still has in hand (family id -> why)."""

    memory: model.Memory
    in_recovery: Mapping[str, str]
    at: str


class Matched(msgspec.Struct, frozen=True):
    """The families that an offer may mean, before their matrices are known."""

    offer: model.Offer
    families: tuple[str, ...]


def matched(offers: Iterable[model.Offer], families: Sequence[str], renames: Mapping[str, str]) -> tuple[Matched, ...]:
    """Return, for each offer, the families of a benchmark that it names: exactly, after a rename, or by a glob."""
    known = set(families)
    found = []
    for offer in offers:
        file, colon, key = offer.family.partition(":")
        name = f"{renames.get(file, file)}{colon}{key}"
        if name in known:
            fitting: tuple[str, ...] = (name,)
        elif any(sign in name for sign in "*?["):
            fitting = tuple(one for one in families if fnmatch.fnmatchcase(one, name))
        else:
            fitting = ()
        found.append(Matched(offer, fitting))
    return tuple(found)


def subject(text: str) -> str:
    """Return the canonical text of a subject: white space collapsed. The candidate's id is made of it."""
    return " ".join(text.split())


def plan(
    *,
    wave: str,
    base: str,
    seed: int,
    policy: model.Policy,
    benchmarks: Mapping[str, Mapping[str, str]],
    families: Mapping[str, Sequence[str]],
    known: Sequence[Known],
    sources: Sequence[SourceRead],
    standing: Standing,
) -> model.Plan:
    """Return the plan.

    ``benchmarks``: their names with their renames; ``families``: all families by benchmark; ``known``: what is known of
    those that offers name.
    """
    by_family = {(one.benchmark, one.family): one for one in known}
    found: dict[str, model.Candidate] = {}
    conflicting: set[str] = set()
    reports = []
    for source in sources:
        joined = matched(source.offers, families.get(source.benchmark, ()), benchmarks.get(source.benchmark, {}))
        unmatched = 0
        examples = list(source.examples)
        for number, one in enumerate(joined, 1):
            if not one.families:
                unmatched += 1
                examples.append(f"candidate {number}: no family of this name in the repository")
            for family in one.families:
                facts = by_family.get((source.benchmark, family))
                if facts is not None and not facts.code and _fits(one.offer, facts):
                    _join(found, conflicting, _candidate(one.offer, facts))
        reports.append(_report(source, unmatched, examples))
    open_ones, blocked = _judge(found.values(), conflicting, by_family, standing)
    ordered = order(open_ones, standing.memory, seed)
    late = ordered[policy.review_candidates :]
    blocked += [
        _block(one, "beyond-limit", "this wave looks at fewer candidates than there are", "a later wave")
        for one in late
    ]
    return model.Plan(
        wave=wave,
        base=base,
        seed=seed,
        at=standing.at,
        families={name: len(families.get(name, ())) for name in benchmarks},
        candidates=tuple(ordered[: policy.review_candidates]),
        blocked=tuple(sorted(blocked, key=lambda one: (one.code, one.family, one.candidate))),
        not_generated=tuple(
            model.NotGenerated(benchmark=one.benchmark, family=one.family, code=one.code, message=one.message)
            for one in known
            if one.code
        ),
        sources=tuple(reports),
    )


def order(candidates: Iterable[model.Candidate], memory: model.Memory, seed: int) -> list[model.Candidate]:
    """Return the candidates, least recently tried family first, equals shuffled by the seed and nothing else."""

    def key(one: model.Candidate) -> tuple[str, str]:
        state = memory.families.get(names.short_id(one.family))
        tried = (state.last_tried_at if state is not None else None) or ""
        return tried, hashlib.sha256(f"{seed}\0{one.candidate}".encode()).hexdigest()

    return sorted(candidates, key=key)


def blocks(candidate: model.Candidate, standing: Standing, *, inputs: str) -> tuple[model.PlanCode, str, str] | None:
    """Return (code, message, what would unblock it) of the first thing that blocks a candidate, None where nothing does."""
    memory, in_recovery, at = standing.memory, standing.in_recovery, standing.at
    family = names.short_id(candidate.family)
    state = memory.families.get(family, model.FamilyState())
    pull = next((one.number for one in memory.pulls if names.family_of(one.candidate) == family), None)
    resumed = "a person resumes it (klaud resume)"
    rules: tuple[tuple[bool, model.PlanCode, str, str], ...] = (
        (family in in_recovery, "in-recovery", in_recovery.get(family, ""), "the session of it is settled"),
        (state.claim == "held", "claimed", f"{state.held_by or 'another session'} holds its claim", "that session ends"),
        (
            "quarantined" in {state.claim, state.memory},
            "quarantined",
            "a record of it cannot be trusted",
            "a person looks at the ref that klaud recover names",
        ),
        ("newer" in {state.claim, state.memory}, "newer-writer", "a newer klaud has written of it", "this klaud is updated"),
        (pull is not None, "open-pull-request", f"pull request #{pull} of it is open", f"#{pull} is closed or merged"),
        (
            not memory.pulls_complete,
            "pulls-unknown",
            "the open pull requests could not all be listed",
            "the listing is complete again",
        ),
        (state.paused, "paused", "a person has paused it", resumed),
        (
            candidate.candidate in memory.tombstones,
            "tombstone",
            "a person closed its pull request",
            "its subject changes, or the tombstone is removed",
        ),
        (
            state.cool_down_until is not None and at < state.cool_down_until,
            "cool-down",
            f"its last attempt failed; not before {state.cool_down_until}",
            f"the time {state.cool_down_until}",
        ),
        (
            bool(state.blocked_inputs) and state.blocked_inputs == inputs,
            "baseline-unchanged",
            "its baseline could not be used, and what that rests on is the same",
            "its configuration or generator changes",
        ),
    )  # fmt: skip
    return next(((code, message, unblock) for holds, code, message, unblock in rules if holds), None)


def _judge(
    candidates: Iterable[model.Candidate],
    conflicting: set[str],
    known: Mapping[tuple[str, str], Known],
    standing: Standing,
) -> tuple[list[model.Candidate], list[model.Blocked]]:
    open_ones, blocked = [], []
    for one in candidates:
        if one.candidate in conflicting:
            words = "two sources offer different changes under the same subject"
            blocked.append(_block(one, "conflicting-offers", words, "the subjects differ, or the changes agree"))
            continue
        why = blocks(one, standing, inputs=known[one.benchmark, one.family].inputs)
        if why is None:
            open_ones.append(one)
        else:
            blocked.append(_block(one, *why))
    return open_ones, blocked


def _block(one: model.Candidate, code: model.PlanCode, message: str, unblock: str) -> model.Blocked:
    return model.Blocked(
        candidate=one.candidate,
        family=one.family,
        benchmark=one.benchmark,
        code=code,
        message=message[: model.MESSAGE_CHARACTERS],
        unblock=unblock,
    )


def _fits(offer: model.Offer, facts: Known) -> bool:
    """Tell whether any variant of the family has all the values that the offer asks for."""
    if not offer.match:
        return True
    return any(all(_same(entry.get(key), value) for key, value in offer.match.items()) for entry in facts.entries)


def _same(found: Any, wanted: Any) -> bool:
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def _candidate(offer: model.Offer, facts: Known) -> model.Candidate:
    text = subject(offer.subject)
    return model.Candidate(
        candidate=names.candidate_id(facts.family, text),
        family=facts.family,
        benchmark=facts.benchmark,
        kind=facts.kind,
        subject=text,
        change={**facts.defaults, **offer.change},
        targets=facts.targets,
    )


def _join(found: dict[str, model.Candidate], conflicting: set[str], one: model.Candidate) -> None:
    before = found.setdefault(one.candidate, one)
    if before.change != one.change or before.benchmark != one.benchmark:
        conflicting.add(one.candidate)


def _report(source: SourceRead, unmatched: int, examples: Sequence[str]) -> model.SourceReport:
    return model.SourceReport(
        benchmark=source.benchmark,
        source=source.source,
        status="failed" if source.code else "read",
        code=source.code,  # type: ignore[arg-type]
        message=source.message,
        offers=len(source.offers),
        refused=source.refused,
        unmatched=unmatched,
        examples=tuple(one[: model.MESSAGE_CHARACTERS] for one in examples[: model.MAX_EXAMPLES]),
    )
