"""Date archived ledgers by their newest records, and say which of them go.

Reads one record, that of the oldest; only where that one is past its time (or tells nothing) the rest of the window is read,
in one more fetch: a sweep that has nothing to drop costs one fetch, whatever the archive holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from klaud import errors
from klaud.github import gateway as ports
from klaud.leases import codec
from klaud.leases import model as leases
from klaud.recovery import rules_archives

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from klaud import names
    from klaud.recovery import decide_plan, model
    from klaud.recovery.rules_archives import Archived

LEDGER_RECORDS = get_args(leases.LedgerRecord)


class Archives:
    """The archived ledgers of one repository, as one sweep reads them."""

    def __init__(self, *, refs: ports.RefStore, ref_names: names.RefNames, repository: str, key: bytes | None) -> None:
        """``key``: the record key; with one, only records signed with it are believed."""
        self._refs = refs
        self._names = ref_names
        self._repository = repository
        self._key = key

    def past(self, thinking: decide_plan.Thinking) -> tuple[model.Verdict, ...]:
        """Return a verdict for each archived ledger that goes; a read that fails drops nothing."""
        window = rules_archives.window(thinking.sight.snapshot.archives, self._names)
        found = list(self._judged(thinking, window[:1]))
        if found and found[0] is None:
            return ()
        found += self._judged(thinking, window[1:])
        return tuple(one for one in found if one is not None)

    def _judged(self, thinking: decide_plan.Thinking, copies: Sequence[Archived]) -> Iterator[model.Verdict | None]:
        """Yield a verdict for each copy that goes, None for each that is too young, nothing for what tells nothing."""
        try:
            commits = self._refs.read([one.oid for one in copies]) if copies else {}
        except (errors.RetryLaterError, errors.ForbiddenError):
            yield None
            return
        for one in copies:
            last = self._record(one, commits.get(one.oid))
            if last is None:
                continue
            past = rules_archives.is_past(one, last, thinking.sight, thinking.index, thinking.policy)
            yield rules_archives.verdict(one, last, thinking.policy) if past else None

    def _record(self, one: Archived, commit: ports.CommitData | ports.NotACommit | None) -> leases.LedgerRecord | None:
        if not isinstance(commit, ports.CommitData) or not commit.tree_is_empty or len(commit.parents) > 1:
            return None
        record = codec.decode(
            commit.message,
            repository=self._repository,
            ref=self._names.session(one.wave, one.candidate),
            parent=commit.parents[0] if commit.parents else None,
            key=self._key,
        )
        return record if isinstance(record, LEDGER_RECORDS) else None
