"""Listings page by page, with ``Link`` headers and GitHub's caps; and what faults do to them."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any

from klaud.fakehub.call import Page, Problem, Reply

if TYPE_CHECKING:
    from klaud.fakehub.call import Call

PER_PAGE = 30
"""Rows of a page where the caller does not say."""

PER_PAGE_LIMIT = 100
"""Rows of a page at most: GitHub quietly serves this many where more are asked."""


def number(text: str | None, default: int) -> int:
    """Return a positive number from a query, else the default."""
    try:
        value = int(text or "")
    except ValueError:
        return default
    return value if value > 0 else default


def serve_page(call: Call, page: Page) -> Reply:
    """Return the page that the call's ``page`` and ``per_page`` name."""
    size = min(number(call.query.get("per_page"), PER_PAGE), PER_PAGE_LIMIT)
    index = number(call.query.get("page"), 1)
    total = len(page.items)
    served = total if page.cap is None else min(total, page.cap)
    start, end = (index - 1) * size, min(index * size, served)
    last = max(1, -(-served // size))
    nulls = False
    for fault in call.faults:
        match fault.kind:
            case "page-limit" if size > fault.rows:
                raise Problem(fault.status if fault.status != 500 else 502, "Server Error")
            case "truncate":
                end = min(end, fault.rows)
            case "drift" if index > 1:
                start, end = start + fault.rows, end + fault.rows
            case "null-items":
                nulls = True
            case "total-count":
                total = fault.total
            case _:
                pass
    rows: list[Any] = [page.render(item) for item in page.items[start : max(start, end)]]
    if nulls:
        rows.insert(0, None)
    headers = {}
    link = links(call, index, last)
    if link:
        headers["Link"] = link
    if page.key is None:
        return Reply(200, rows, headers)
    body: dict[str, Any] = {"total_count": total, page.key: rows, **page.extra}
    return Reply(200, body, headers)


def links(call: Call, index: int, last: int) -> str:
    """Return the ``Link`` header's value, or nothing for a single page."""

    def url(page: int) -> str:
        query = {**call.query, "page": str(page)}
        return f"{call.base_url}{urllib.parse.quote(call.path)}?{urllib.parse.urlencode(query)}"

    rels: list[tuple[str, int]] = []
    if index > 1:
        rels.append(("prev", min(index - 1, last)))
    if index < last:
        rels += [("next", index + 1), ("last", last)]
    if index > 1:
        rels.append(("first", 1))
    return ", ".join(f'<{url(page)}>; rel="{rel}"' for rel, page in rels)
