"""The rules of review, and how a reviewer's answer becomes a decision. Pure.

In order, for one candidate and each open pull request that is not klaud's own:

1. it removes or renames the family's file, edits the family's entry, or edits one of its recipe files: ``duplicate``;
2. its file list is incomplete, or it edits the family's file in a way that could not be read: undecided;
3. it touches a shared file: undecided where a reviewer can be asked, otherwise no obstacle;
4. anything else: no obstacle.

One ``duplicate`` decides. Nothing undecided and a complete listing: ``proceed``. What stays undecided is put to the
reviewer, or is ``uncertain``. A reviewer can only say of *these* pull requests that they do or do not do what the
candidate would do; an answer that names anything else is not believed, whatever it says.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from klaud import names
from klaud.review import model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_PULLS = 50
"""Pull requests that one decision may name; the rest would say nothing new."""


def by_rules(
    candidate: model.Candidate, pulls: model.OpenPulls, *, mode: model.Mode = "rules"
) -> model.Decision | model.Undecided:
    """Decide by rules alone, or say which pull requests are undecided and what the decision is when nobody is asked."""
    found: dict[model.Reason, list[model.OpenPull]] = {}
    for pull in pulls.pulls:
        if not pull.own and (reason := _obstacle(candidate, pull, ask=mode != "rules")):
            found.setdefault(reason, []).append(pull)
    for reason in ("moves-file", "edits-entry", "edits-recipe"):
        if reason in found:
            return _decision(candidate, "duplicate", reason, found[reason])
    if not pulls.complete:
        return _decision(candidate, "uncertain", "pulls-incomplete", ())
    for reason in ("files-incomplete", "entry-unknown", "no-overlap"):
        if reason in found:
            verdict: model.Verdict = "proceed" if reason == "no-overlap" else "uncertain"
            fallback = _decision(candidate, verdict, reason, found[reason])
            if mode == "rules":
                return fallback
            asked = {pull.number for some in found.values() for pull in some}
            undecided = tuple(pull for pull in pulls.pulls if pull.number in asked)
            return model.Undecided(candidate=candidate, pulls=undecided, fallback=fallback)
    return _decision(candidate, "proceed", "no-overlap", ())


def by_answer(
    undecided: model.Undecided,
    answer: model.Answered | model.Unanswered | None,
    policy: model.Policy,
) -> model.Decision:
    """Return the decision that a reviewer's answer gives, believing only what code can check."""
    candidate, mode = undecided.candidate, policy.mode
    if answer is None:
        return _decision(candidate, "uncertain", "decision-missing", undecided.pulls, mode)
    if isinstance(answer, model.Unanswered):
        return _decision(candidate, "uncertain", answer.reason, undecided.pulls, mode)
    said = _read(answer.value)
    if said is None:
        return _decision(candidate, "uncertain", "decision-malformed", undecided.pulls, mode)
    verdict, numbers, named = said
    asked = {pull.number: pull for pull in undecided.pulls}
    if not numbers <= asked.keys() or not named <= set(policy.known_names):
        return _decision(candidate, "uncertain", "decision-unknown-name", undecided.pulls, mode)
    if verdict == "duplicate" and not numbers:
        return _decision(candidate, "uncertain", "decision-malformed", undecided.pulls, mode)
    return _decision(candidate, verdict, "reviewed", [asked[number] for number in sorted(numbers)], mode)


def failed(undecided: model.Undecided, mode: model.Mode) -> model.Decision:
    """Return the decision on a candidate whose reviewer could not be asked."""
    return _decision(undecided.candidate, "uncertain", "reviewer-failed", undecided.pulls, mode)


def too_many(undecided: model.Undecided) -> model.Decision:
    """Return the decision on a candidate with more undecided pull requests than one question may hold."""
    return _decision(undecided.candidate, "uncertain", "too-many-pulls", undecided.pulls)


def counts(decisions: Iterable[model.Decision]) -> dict[str, int]:
    """Count decisions by reason."""
    counted: dict[str, int] = {}
    for decision in decisions:
        counted[decision.reason] = counted.get(decision.reason, 0) + 1
    return dict(sorted(counted.items()))


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the top-level keys whose values differ in kind or content; the order of keys does not matter."""
    keys = before.keys() | after.keys()
    absent = object()
    return tuple(sorted(key for key in keys if not _same(before.get(key, absent), after.get(key, absent))))


def _same(left: Any, right: Any) -> bool:
    """Compare like ``==``, but tell True from 1 and 1 from 1.0: YAML does, and so does whoever reads the file."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _obstacle(candidate: model.Candidate, pull: model.OpenPull, *, ask: bool) -> model.Reason | None:
    """Return why ``pull`` may stand in the candidate's way; ``no-overlap``: only a reviewer could tell that it does."""
    file, key = names.split_family(candidate.family)
    undecided: model.Reason | None = None
    for touched in pull.files:
        paths = [path for path in (touched.path, touched.previous) if path is not None]
        if file in paths:
            if touched.status == "removed" or (touched.previous == file and touched.path != file):
                return "moves-file"
            entries = next((entry for entry in pull.entries if entry.path == file), None)
            if entries is None or not entries.known:
                undecided = "entry-unknown"
            elif key in entries.keys:
                return "edits-entry"
        if any(_matches(path, candidate.recipes) for path in paths):
            return "edits-recipe"
        if ask and undecided is None and any(_matches(path, candidate.shared) for path in paths):
            undecided = "no-overlap"
    if not pull.files_complete:
        return "files-incomplete"
    return undecided


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(path == pattern or fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


_VERDICTS: Mapping[str, model.Verdict] = {"proceed": "proceed", "duplicate": "duplicate", "uncertain": "uncertain"}


def _read(value: Any) -> tuple[model.Verdict, set[int], set[str]] | None:
    """Return (verdict, pull requests, names) of an answer of exactly the agreed form, else None."""
    if not isinstance(value, dict) or not value.keys() <= {"decision", "pulls", "names", "reason"}:
        return None
    said, pulls, named = value.get("decision"), value.get("pulls", []), value.get("names", [])
    verdict = _VERDICTS.get(said) if isinstance(said, str) else None
    if verdict is None or not isinstance(value.get("reason", ""), str):
        return None
    if not isinstance(pulls, list) or not isinstance(named, list) or max(len(pulls), len(named)) > MOST_PULLS:
        return None
    if any(type(number) is not int for number in pulls) or any(type(name) is not str for name in named):
        return None
    return verdict, set(pulls), set(named)


def _decision(
    candidate: model.Candidate,
    verdict: model.Verdict,
    reason: model.Reason,
    pulls: Iterable[model.OpenPull],
    by: model.Mode = "rules",
) -> model.Decision:
    numbers = tuple(sorted(pull.number for pull in pulls))[:MOST_PULLS]
    return model.Decision(
        candidate=candidate.candidate,
        family=candidate.family,
        verdict=verdict,
        reason=reason,
        message=_message(candidate, verdict, reason, numbers),
        pulls=numbers,
        by=by,
    )


def _message(candidate: model.Candidate, verdict: model.Verdict, reason: model.Reason, numbers: tuple[int, ...]) -> str:
    named = ", ".join(f"#{number}" for number in numbers[:5]) + (" and more" if len(numbers) > 5 else "")
    file, key = names.split_family(candidate.family)
    return {
        "no-overlap": f"no open pull request touches {key}",
        "edits-entry": f"{named} edits {key} in {file}",
        "edits-recipe": f"{named} edits a recipe file of {key}",
        "moves-file": f"{named} removes or renames {file}",
        "pulls-incomplete": "the list of open pull requests could not be read to its end",
        "files-incomplete": f"the list of files of {named} is incomplete",
        "entry-unknown": f"{named} edits {file}, and what it does to {key} could not be read",
        "too-many-pulls": f"more pull requests may touch {key} than a reviewer is asked about at once ({named})",
        "reviewed": f"the reviewer says: {verdict}" + (f" ({named})" if named else ""),
        "decision-missing": f"the reviewer said nothing about {key}",
        "decision-malformed": f"the reviewer's answer about {key} is not a decision",
        "decision-unknown-name": f"the reviewer's answer about {key} names something that it was not asked about",
        "reviewer-failed": f"the reviewer could not be asked about {key}",
    }[reason]
