"""What a push over the git protocol is made of, apart from the conversation: judging, packing, and reading refusals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dulwich import objects

from klaud.github import gateway

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dulwich import object_store as stores

ZERO = b"0" * 40
"""How the protocol writes "does not exist"."""

NOT_ATOMIC = "another ref of this atomic push was not as expected"
"""Why a ref of an atomic push was not written although it was as expected itself."""

REASON_LIMIT = 300
"""Characters kept of a host's refusal."""

_CONNECTION = re.compile(r"^HTTPS?Connection\([^)]*\): ")
"""How urllib3 begins a failed connection's words: the address is told beside them already."""

_TOO_MANY = re.compile(r"(too many|more than \d+) [a-z ]*(refs?|branch|tag|update)", re.IGNORECASE)


class TooManyRefsError(Exception):
    """The host limits how many refs one push may update. ``settled``: what this push answered for; ``left``: the others."""

    def __init__(self, settled: Sequence[gateway.RefResult], left: Sequence[gateway.RefUpdate]) -> None:
        """``left`` was refused for the number alone and had no effect."""
        super().__init__(f"{len(left)} refs refused")
        self.settled = settled
        self.left = left


def judge(
    updates: Sequence[gateway.RefUpdate], advertised: Mapping[bytes, bytes], *, atomic: bool
) -> dict[str, gateway.RefResult]:
    """Return the results that need no push: refs not as expected, and those already as wanted."""
    judged: dict[str, gateway.RefResult] = {}
    for update in updates:
        stands = advertised.get(update.ref.encode())
        actual = None if stands is None else stands.decode()
        if actual != update.expected or (actual is None and update.new is None):
            judged[update.ref] = gateway.RefSuperseded(update.ref, actual)
        elif actual == update.new:
            judged[update.ref] = gateway.RefUpdated(update.ref)
    if atomic and any(isinstance(result, gateway.RefSuperseded) for result in judged.values()):
        for update in updates:
            if not isinstance(judged.get(update.ref), gateway.RefSuperseded):
                judged[update.ref] = gateway.RefRejected(update.ref, NOT_ATOMIC)
    return judged


def own_commits(
    store: stores.MemoryObjectStore, have: set[objects.ObjectID], want: set[objects.ObjectID]
) -> list[objects.ShaFile]:
    """Return this store's commits from ``want`` back to what the host has."""
    found: dict[objects.ObjectID, objects.ShaFile] = {}
    queue = list(want)
    while queue:
        oid = queue.pop()
        if oid in found or oid in have or oid not in store:
            continue
        commit = store[oid]
        found[oid] = commit
        if isinstance(commit, objects.Commit):
            queue.extend(commit.parents)
    return list(found.values())


def parts(items: list[gateway.RefUpdate], size: int) -> list[list[gateway.RefUpdate]]:
    """Cut updates into pushes of at most ``size``."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def words(error: Exception) -> str:
    """Return an error's own words on one line, cut; its type where it has none. Of a failed connection: why it failed."""
    told = error
    for outer in (error, error.__cause__, error.__context__):  # dulwich hands the connection's error on inside its own
        inner = getattr(outer, "reason", None)
        if isinstance(inner, Exception):
            told = inner
            break
    said = _CONNECTION.sub("", " ".join(str(told).split()))
    return (said or type(told).__name__)[:REASON_LIMIT]


def too_many(spoken: str, reasons: Iterable[str]) -> bool:
    """Tell whether a host's refusal says that one push may not update so many refs."""
    return _TOO_MANY.search(f"{spoken}\n{' '.join(reasons)}") is not None
