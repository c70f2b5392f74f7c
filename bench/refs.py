"""How long the ref store takes with many refs: listing them, reading their records, writing and deleting in one push.

    python bench/refs.py [REFS]

A real bare repository behind ``git http-backend`` on loopback; the host's own time is in the wall time, not in the CPU
time, which is this process's alone (server threads included, git's processes not).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from klaud import clock
from klaud.github import refs
from klaud.github.gateway import RefUpdate
from klaud.leases import store as stores
from tests.support import githttp, records


def main() -> None:
    """Measure and print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as root, githttp.serve(Path(root)) as host:

        def connect() -> refs.GitRefStore:
            identity = refs.Identity("klaud", "klaud@example.invalid")
            return refs.GitRefStore(url=host.url, token="", identity=identity, clock=clock.SystemClock())

        def measure(what: str, store: refs.GitRefStore, act: object) -> object:
            wall, cpu = time.perf_counter(), time.process_time()
            answer = act()  # type: ignore[operator]
            print(
                f"{what:46} {time.perf_counter() - wall:7.2f} s wall {time.process_time() - cpu:7.2f} s CPU"
                f" {store.traffic / 1e6:8.2f} MB  {store.pushes} pushes {store.fetches} fetches"
            )
            return answer

        one = connect()
        leases = stores.LeaseStore(
            refs=one, names=records.NAMES, repository="acme/bench", clock=clock.SystemClock(), key=b"k"
        )
        names = [f"{number:016x}" for number in range(count)]
        updates = [
            leases.prepare(records.NAMES.lease(f"{number + 1}.1", records.CANDIDATE), None,
                           records.lease(wave=f"{number + 1}.1"))
            for number in range(count)
        ]  # fmt: skip
        results = measure(f"create {count} refs with records", one, lambda: one.apply(updates))
        assert {type(result).__name__ for result in results} == {"RefUpdated"}, results[:3]  # type: ignore[index, attr-defined]
        two = connect()
        found = measure(f"list {count} refs", two, lambda: two.list(["refs/klaud/"]))
        assert len(found) == len(names)  # type: ignore[arg-type]
        three = connect()
        reader = stores.LeaseStore(
            refs=three, names=records.NAMES, repository="acme/bench", clock=clock.SystemClock(), key=b"k"
        )
        snapshot = measure(f"snapshot of {count} refs: list, read, verify", three, reader.snapshot)
        assert len(snapshot.leases) == count  # type: ignore[attr-defined]
        four = connect()
        gone = [RefUpdate(update.ref, update.new, None) for update in updates[: count * 7 // 10]]
        measure(f"delete {len(gone)} of them", four, lambda: four.apply(gone))
        left = len(connect().list(["refs/klaud/"]))
        assert left == count - len(gone), left


if __name__ == "__main__":
    main()
