"""What the tests of the git ref store share: who pushes, how often it tries, and what a host can be made to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.github import refs, retry
from tests.support import ref_store_contract

if TYPE_CHECKING:
    from tests.support import githttp

TOKEN = "canary-5f1e9c"
ME = refs.Identity("klaud", "klaud@example.invalid")
A, B, LEDGER = ref_store_contract.A, ref_store_contract.B, ref_store_contract.LEDGER
QUICK = retry.Policy(tries=3, first_wait=0.5)


def posts(host: githttp.GitHost) -> int:
    """Count the pushes that reached the host."""
    return sum(path.endswith("/git-receive-pack") and method == "POST" for method, path in host.log)


def hook(host: githttp.GitHost, name: str, text: str) -> None:
    """Give the host a hook."""
    path = host.repo / "hooks" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
