"""Pull requests in batches over GraphQL: by exact head, and by number.

A batch that the host fails on (502, 504) is halved, down to one; what then still fails is an incomplete listing of that
head alone, and after ``FAILURES`` such heads the rest is not asked for any more. Nothing at all read is an error. A fork's
pull request with a look-alike head, and a head that only begins like the asked one, are dropped here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from klaud import errors
from klaud.github import decode, decode_graphql, graphql, model, sender

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

K = TypeVar("K", str, int)

TIMELINE_LIMIT = 250
"""Entries of one timeline: as many as GitHub serves commits of a pull request; a longer one is incomplete, thus touched."""

FAILURES = 3
"""Single pull requests that may fail one after another before the rest of a batched read is given up."""


class Query(Protocol):
    """What sends a GraphQL read."""

    def __call__(
        self, text: str, variables: Mapping[str, object], *, root: str, tries: int | None = None
    ) -> decode_graphql.Answer:
        """Return the opened envelope."""
        ...


class PullReader:
    """Batched reads of one repository's pull requests."""

    def __init__(self, query: Query, *, owner: str, name: str) -> None:
        """``query``: the gateway's own."""
        self._query = query
        self._owner = owner
        self._name = name

    def of_heads(self, heads: Sequence[str]) -> dict[str, model.Listing[model.PullDetail]]:
        """Return the pull requests of each head; every asked head is a key."""
        found: dict[str, model.Listing[model.PullDetail]] = {}
        answers = self._batches(list(dict.fromkeys(heads)), "h", graphql.pulls_of_heads)
        for head, (answer, alias) in answers.items():
            if isinstance(answer, decode_graphql.Unread):
                found[head] = model.Listing((), complete=False, why_not=answer.why)
                continue
            try:
                details, trouble = decode_graphql.pulls_of_head(answer, alias)
            except decode.UndecodableError as error:
                found[head] = model.Listing((), complete=False, why_not=str(error))
                continue
            ours = tuple(self._whole(one) for one in details if self._is_ours(one.detail.pull, head))
            found[head] = model.Listing(ours, complete=trouble is None, why_not=trouble.why if trouble else "")
        return found

    def of_numbers(self, numbers: Sequence[int]) -> dict[int, model.PullDetail | model.Missing]:
        """Return the pull requests of these numbers; ReadFailedError where one could not be read."""
        found: dict[int, model.PullDetail | model.Missing] = {}
        answers = self._batches(list(dict.fromkeys(numbers)), "n", graphql.pull_details)
        for number, (answer, alias) in answers.items():
            one = answer if isinstance(answer, decode_graphql.Unread) else decode_graphql.pull_of_number(answer, alias)
            if isinstance(one, decode_graphql.Unread):
                if not one.missing:
                    raise errors.ReadFailedError(f"pull request {number} could not be read: {one.why}")
                found[number] = model.Missing(what=f"pull request {number}")
            else:
                found[number] = self._whole(one)
        return found

    def _is_ours(self, pull: model.Pull, head: str) -> bool:
        repository = f"{self._owner}/{self._name}"
        return pull.head_ref == head and (pull.head_repository or "").lower() == repository.lower()

    def _batches(
        self, asked: list[K], letter: str, document: _Document
    ) -> dict[K, tuple[decode_graphql.Answer | decode_graphql.Unread, str]]:
        found: dict[K, tuple[decode_graphql.Answer | decode_graphql.Unread, str]] = {}
        queue = [asked[start : start + graphql.BATCH] for start in range(0, len(asked), graphql.BATCH)]
        failed = 0
        last: errors.RetryLaterError | None = None
        while queue:
            part = queue.pop(0)
            if failed >= FAILURES:
                found.update(dict.fromkeys(part, (decode_graphql.Unread("not asked: the host keeps failing"), "")))
                continue
            variables: dict[str, object] = {"owner": self._owner, "name": self._name}
            variables |= {f"{letter}{at}": one for at, one in enumerate(part)}
            try:
                answer = self._query(
                    document(len(part)),
                    variables,
                    root="repository",
                    tries=1 if len(part) > 1 else None,
                )
            except sender.BigError as error:
                last = error
                if len(part) > 1:
                    half = len(part) // 2
                    queue[:0] = [part[:half], part[half:]]
                else:
                    failed += 1
                    found[part[0]] = (decode_graphql.Unread(str(error)), "")
                continue
            except errors.ReadFailedError as error:
                last = error
                if len(part) > 1 and error.after is None and failed == 0:
                    queue[:0] = [part[:1], part[1:]]
                    continue
                failed = FAILURES
                found.update(dict.fromkeys(part, (decode_graphql.Unread(str(error)), "")))
                continue
            failed = 0
            self._seen(answer)
            found.update({one: (answer, f"{letter}{at}") for at, one in enumerate(part)})
        if last is not None and all(isinstance(answer, decode_graphql.Unread) for answer, _ in found.values()):
            raise last
        return found

    def _seen(self, answer: decode_graphql.Answer) -> None:
        """Raise where the whole repository was left out."""
        if not answer.parts and (answer.whole or answer.failed):
            told = "; ".join([*answer.whole, *(unread.why for unread in answer.failed.values())])
            raise errors.ReadFailedError(f"the pull requests of {self._owner}/{self._name} could not be read: {told}")

    def _whole(self, one: decode_graphql.Detail) -> model.PullDetail:
        """Read the rest of a long timeline, up to the bound."""
        detail, after = one.detail, one.after
        if after is None:
            return detail
        events = list(detail.timeline.items)
        why_not = detail.timeline.why_not
        while after is not None and not why_not:
            if len(events) >= TIMELINE_LIMIT:
                why_not = f"more than {TIMELINE_LIMIT} entries"
                break
            try:
                variables = {"id": detail.pull.node_id, "after": after}
                page = decode_graphql.timeline_page(self._query(graphql.TIMELINE_PAGE, variables, root=""))
            except (errors.ReadFailedError, decode.UndecodableError) as error:
                page = decode_graphql.Unread(str(error))
            if isinstance(page, decode_graphql.Unread):
                why_not = f"a later page could not be read: {page.why}"
                break
            events.extend(page.events)
            why_not = f"{page.dropped} entries could not be read" if page.dropped else ""
            after = page.after
        timeline = model.Listing(tuple(events), complete=not why_not, why_not=why_not)
        return model.PullDetail(pull=detail.pull, commits=detail.commits, timeline=timeline)


class _Document(Protocol):
    def __call__(self, count: int) -> str: ...
