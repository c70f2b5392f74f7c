"""Answers of a scripted REST host: what a test of the gateway has it say, and what it was asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.github import test_decode as wire
from tests.support.loopback import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.github import rest
    from tests.support import loopback

TOKEN = "canary-77aa01"
BASE = "/repos/acme/bench"
RUNS = f"{BASE}/actions/runs"


def said(body: Any, status: int = 200, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(body).encode(), status, {"Content-Type": "application/json", **names})


def run(number: int, **changes: Any) -> dict[str, Any]:
    return {
        **wire.RUN,
        "id": number,
        "created_at": f"2026-11-{1 + number // 1440 % 28:02}T{number // 60 % 24:02}:{number % 60:02}:00Z",
        **changes,
    }


def paths(server: loopback.Loopback) -> list[str]:
    return [asked.path for asked in server.asked]


def page(rows: list[Any], total: int, following: str = "") -> Reply:
    link = {"Link": f'<{following}>; rel="next", <x>; rel="last"'} if following else {}
    return said({"total_count": total, "workflow_runs": rows}, **link)


def first(query: str = "", size: int = 100) -> str:
    parts = sorted([*(part for part in query.split("&") if part), f"per_page={size}"])
    return f"{RUNS}?{'&'.join(parts)}"


def sees(
    twin: type[rest.RestGateway],
    check: Callable[[loopback.Loopback, rest.RestGateway], None],
    server: loopback.Loopback,
    clock: loopback.FakeClock,
) -> None:
    """Fail unless ``check`` fails on a gateway that lacks a guard."""
    made = twin(repository="acme/bench", token=TOKEN, api_url=server.url, clock=clock)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(server, made)
    made.close()
