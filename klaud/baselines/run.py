"""Tie the parts together: rows, producers, matrices, verdicts. Signatures first; see each function.

The split follows the credentials (planner.md). ``read_rows`` and ``regenerate`` need none; ``prove`` needs the gateway
and must run where the token is; ``needs``, ``verdicts`` and ``bundles`` are pure and run anywhere. What passes between
jobs are records of ``model.py``, which ``msgspec.json`` writes and reads.
"""

from __future__ import annotations

import msgspec

from klaud.baselines import model


class RowsRead(msgspec.Struct, frozen=True, kw_only=True):
    """The published rows that could be decoded, and those that could not."""

    rows: tuple[model.Row, ...]
    malformed: tuple[model.Malformed, ...] = ()
    malformed_count: int = 0


class FeedFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The feed could not be had or read; ``code`` is ``feed-unavailable`` or ``feed-invalid``.

    A failed feed never looks like an empty one: it defers every family of the benchmark.
    """

    code: str
    message: str


# Signatures (being filled in):
#   read_rows(policy, *, root: Path, fetch: Fetch) -> RowsRead | FeedFailed
#   prove(policy, read, *, gateway, repository: str, host: str, git: GitObjects, default_branch: str, root: Path,
#         fetch: Fetch) -> model.Proofs
#   needs(policy, read, proofs, *, families, scopes: Produced | None, current: str) -> tuple[model.Need, ...]
#   regenerate(policy, needs, *, git: GitObjects, cache: Path | None, parallel: int = 0) -> model.Produced
#   verdicts(policy, read, proofs, produced, *, families, current: str) -> model.Judgement
#   bundles.make(policy, read, proofs, produced, *, family, current) -> bytes;  bundles.verify(data) -> Checked
