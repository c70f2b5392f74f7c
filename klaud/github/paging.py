"""Listings that say whether they are complete.

A page follows another as its ``Link`` header says (its query is taken, its address is not: the token goes to our own
address only). Incomplete, with the reason: a bound of rows or pages reached; a ``null`` or unreadable row; fewer rows than
``total_count``; a later page that failed, or that is empty or unreadable where a next one is named. A first page that
fails raises. Where pages of 100 fail with 502 or 504, the listing begins again with pages of 25 (oddity L32).

GitHub serves 1,000 rows of a filtered run listing and empty pages after that (oddity L25): older runs are then asked for
by their creation time, in at most ``WINDOWS`` windows, unless the caller has set ``created`` itself.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from klaud import errors
from klaud.github import decode, model, sender

T = TypeVar("T")
Decoder: TypeAlias = Callable[[str], decode.Page[T]]
One: TypeAlias = Callable[[str], T]

PAGE = 100
"""Rows a page: GitHub's maximum."""

SMALL_PAGE = 25
"""Rows a page where bigger ones fail."""

ROWS_LIMIT = 10_000
"""Rows of one listing: 100 pages; more open pull requests or events than that is not a repository klaud can sweep."""

PAGES_LIMIT = ROWS_LIMIT // SMALL_PAGE
"""Pages of one listing: a host that goes on naming a next page of few or no rows is not followed for ever."""

SEARCH_LIMIT = 1000
"""Rows that GitHub serves of one filtered run listing."""

WINDOWS = 10
"""Windows of creation time of one run listing: 10,000 runs."""

_NEXT = re.compile(r'<([^<>]*)>\s*;[^,]*\brel="next"')


class _Rows(msgspec.Struct):
    items: list[object]
    why_not: str = ""
    total: int | None = None


class Pager:
    """Reads listings through a sender."""

    def __init__(self, send: sender.Sender) -> None:
        """``send``: what sends one request."""
        self._sender = send

    def rows(
        self,
        template: str,
        path: str,
        decoder: Decoder[T],
        query: Mapping[str, str] | None = None,
        *,
        bound: int = ROWS_LIMIT,
        unknown: tuple[int, ...] = (),
    ) -> model.Listing[T]:
        """Return the listing at ``path``, at most ``bound`` rows. A first page of a status in ``unknown`` is incomplete."""
        found = self._read(template, path, decoder, dict(query or {}), bound=bound, unknown=unknown)
        items = _unique(found.items)
        why_not = found.why_not
        if not why_not and found.total is not None and len(items) < found.total:
            why_not = f"{len(items)} of {found.total} rows were served"
        return model.Listing(tuple(items), complete=not why_not, why_not=why_not)  # type: ignore[arg-type]

    def runs(self, template: str, path: str, query: Mapping[str, str]) -> model.Listing[model.Run]:
        """Return a run listing, in windows of creation time above GitHub's 1,000 rows."""
        asked = dict(query)
        items: list[object] = []
        wanted: int | None = None
        for _ in range(WINDOWS):
            found = self._read(template, path, decode.runs, asked, bound=SEARCH_LIMIT)
            before = len(items)
            items = _unique([*items, *found.items])
            wanted = found.total if wanted is None else wanted
            runs = [item for item in items if isinstance(item, model.Run)]
            capped = found.total is not None and found.total > len(found.items) >= SEARCH_LIMIT
            if not capped:
                why_not = found.why_not
                if not why_not and wanted is not None and len(runs) < wanted:
                    why_not = f"{len(runs)} of {wanted} runs were served"
                return model.Listing(tuple(runs), complete=not why_not, why_not=why_not)
            if "created" in query or len(items) == before:
                break
            oldest = min(run.created_at for run in runs)
            asked["created"] = f"<={oldest:%Y-%m-%dT%H:%M:%SZ}"
        why_not = f"GitHub serves at most {SEARCH_LIMIT} rows of a filtered run listing; there are {wanted}"
        return model.Listing(tuple(i for i in items if isinstance(i, model.Run)), complete=False, why_not=why_not)

    def _read(
        self,
        template: str,
        path: str,
        decoder: Decoder[T],
        query: dict[str, str],
        *,
        bound: int,
        unknown: tuple[int, ...] = (),
    ) -> _Rows:
        try:
            return self._pages(
                template, path, decoder, {**query, "per_page": str(PAGE)}, bound=bound, unknown=unknown, tries=2
            )
        except sender.BigError:
            return self._pages(
                template,
                path,
                decoder,
                {**query, "per_page": str(SMALL_PAGE)},
                bound=bound,
                unknown=unknown,
                tries=None,
            )

    def _pages(
        self,
        template: str,
        path: str,
        decoder: Decoder[T],
        query: dict[str, str],
        *,
        bound: int,
        unknown: tuple[int, ...],
        tries: int | None,
    ) -> _Rows:
        """Read page after page. ``tries`` of the big size is small: a smaller page is the better second try."""
        found = _Rows([])
        asked = query
        for at in range(PAGES_LIMIT):
            first = at == 0
            try:
                answer = self._sender.send(
                    "GET", template, path, query=asked, accept=unknown if first else (), tries=tries
                )
                if answer.status in unknown:
                    return _Rows([], f"the host does not know it (HTTP {answer.status})")
                page = decode_or_fail(decoder, answer)
            except sender.BigError:
                if first or tries is not None:
                    raise
                return _Rows(found.items, "a later page could not be read: the host fails on it", found.total)
            except errors.RetryLaterError as error:
                if first:
                    raise
                return _Rows(found.items, f"a later page could not be read: {error}", found.total)
            found.items.extend(page.rows)
            found.total = page.total if page.total is not None else found.total
            if page.dropped:
                found.why_not = f"{page.dropped} rows of a page were null or unreadable"
            try:
                following = next_query(answer.headers.get("link", ""))
            except ValueError:
                found.why_not = found.why_not or "the address of the next page cannot be read"
                return found
            if following is None:
                return found
            asked = following
            if len(found.items) >= bound:
                found.why_not = found.why_not or f"more than {bound} rows"
                return found
            if not page.rows and not page.dropped:
                # a count tells whether rows are missing (GitHub serves empty pages above 1,000); without one nothing does
                if found.total is None:
                    found.why_not = found.why_not or "an empty page names a next one"
                return found
        found.why_not = found.why_not or f"more than {PAGES_LIMIT} pages"
        return found


def next_query(link: str) -> dict[str, str] | None:
    """Return the query of a ``Link`` header's next page, None where there is none; ValueError where it is no address."""
    match = _NEXT.search(link)
    if match is None:
        return None
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(match[1]).query))


def decode_or_fail(decoder: One[T], answer: sender.Answer) -> T:
    """Return the decoded body of a read; ReadFailedError where it cannot be decoded."""
    try:
        return decoder(answer.body)
    except decode.UndecodableError as error:
        raise errors.ReadFailedError(
            f"GitHub answered (HTTP {answer.status}) but not as documented: {error}"
        ) from error


def _unique(items: list[object]) -> list[object]:
    """Drop repeated rows: a listing that shifts while it is paged serves some twice."""
    seen: set[object] = set()
    kept: list[object] = []
    for item in items:
        key = getattr(item, "id", None) or getattr(item, "number", None) or getattr(item, "path", None) or item
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept
