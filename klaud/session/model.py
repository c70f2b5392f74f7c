"""What a session is told, what bounds it, and what it may answer."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Brief(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the planner hands to one candidate run: the file ``candidate.json``. Holds no secret.

    ``benchmark`` names an entry of ``benchmarks:`` in the configuration. ``subject`` is the canonical text whose hash is
    in the candidate's id; ``change`` what the candidate source proposes, as key path -> new value (data, not an order).
    ``bundle`` is the digest of the frozen baseline's evidence bundle (``sha256:<hex>``), which lies beside this file as
    ``baseline-<candidate>.json``; ``claim`` the oid of the claim that the planner made for this candidate.
    """

    version: int = 1
    kind: Literal["upgrade", "encode"] = "upgrade"
    wave: str
    candidate: str
    family: str
    base: str
    benchmark: str
    subject: str
    change: dict[str, Any] = {}
    bundle: str = ""
    claim: str = ""
