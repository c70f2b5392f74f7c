"""Rate limits: how many requests an account has left in its hour, on the hub's clock."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klaud.fakehub.call import Call

LIMITS = {"core": 5000, "graphql": 5000}
"""Requests an hour, as GitHub allows an account."""

WINDOW = datetime.timedelta(hours=1)


class Rates:
    """Counts by account and resource."""

    def __init__(self) -> None:
        """Start with everything left."""
        self.limits = dict(LIMITS)
        self._used: dict[tuple[int, str], int] = {}
        self._reset: dict[tuple[int, str], datetime.datetime] = {}

    def _key(self, call: Call, resource: str) -> tuple[int, str]:
        key = (call.actor or 0, resource)
        if key not in self._reset or self._reset[key] <= call.now:
            self._reset[key] = call.now + WINDOW
            self._used[key] = 0
        return key

    def spend(self, call: Call, resource: str, cost: int = 1) -> bool:
        """Count a request; False where the hour's limit is used up."""
        key = self._key(call, resource)
        if self._used[key] + cost > self.limits[resource]:
            return False
        self._used[key] += cost
        return True

    def refund(self, call: Call, resource: str) -> None:
        """Give one request back: an answer 304 costs nothing."""
        key = self._key(call, resource)
        self._used[key] = max(0, self._used[key] - 1)

    def peek(self, call: Call, resource: str) -> dict[str, int]:
        """Return what is left, in the words of ``GET /rate_limit``."""
        key = self._key(call, resource)
        limit, used = self.limits[resource], self._used[key]
        reset = int(self._reset[key].timestamp())
        return {"limit": limit, "used": used, "remaining": limit - used, "reset": reset}

    def headers(self, call: Call, resource: str) -> dict[str, str]:
        """Return the headers that every answer carries."""
        left = self.peek(call, resource)
        return {f"X-RateLimit-{name.capitalize()}": str(value) for name, value in left.items()} | {
            "X-RateLimit-Resource": resource
        }
