"""A seeded scheduler: several processes over one world, of which one runs at a time, handing over at every call.

Each process is a thread that waits at every protocol call for its turn; who goes next is drawn from a seeded generator, so
that a failing order can be repeated exactly. Nothing here sleeps or races: only whoever has the turn
touches the world.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from tests.support.memory_world import Call, Killed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.memory_world import World

WAIT_SECONDS = 30.0
"""A turn that takes longer than this is a fault of the test."""


class Scheduler:
    """Runs processes by name over one world in an order that the seed decides; ``killed_at`` kills one at its k-th call."""

    def __init__(self, world: World, seed: int, *, killed_at: dict[str, int] | None = None) -> None:
        """``killed_at``: process -> the number of its call after which it dies."""
        self._world = world
        self._chance = random.Random(seed)  # noqa: S311 - an order to repeat, not a secret
        self._turn: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._waiting: set[str] = set()
        self._calls: dict[str, int] = {}
        self._killed_at = killed_at or {}
        self.errors: list[BaseException] = []
        self.order: list[str] = []

    def run(self, processes: dict[str, Callable[[], object]]) -> None:
        """Run all processes to their ends."""
        self._world.before.append(self._before)
        try:
            self._run(processes)
        finally:
            self._world.before.remove(self._before)

    def _run(self, processes: dict[str, Callable[[], object]]) -> None:
        threads = []
        for name, process in processes.items():
            self._turn[name] = threading.Semaphore(0)
            thread = threading.Thread(target=self._body, args=(name, process), name=name, daemon=True)
            threads.append(thread)
            self._waiting.add(name)
            thread.start()
        while self._waiting:
            name = self._chance.choice(sorted(self._waiting))
            self.order.append(name)
            self._turn[name].release()
            assert self._back.acquire(timeout=WAIT_SECONDS), f"{name} does not hand the turn back"
        for thread in threads:
            thread.join(WAIT_SECONDS)

    def _body(self, name: str, process: Callable[[], object]) -> None:
        self._turn[name].acquire()
        try:
            process()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self.errors.append(error)
        self._waiting.discard(name)
        self._back.release()

    def _before(self, call: Call) -> None:
        name = threading.current_thread().name
        if name not in self._turn:
            return
        count = self._calls.get(name, 0)
        self._calls[name] = count + 1
        if self._killed_at.get(name) == count:
            raise Killed(call.name)
        self._back.release()
        self._turn[name].acquire()
