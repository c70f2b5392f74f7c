"""The pause switch of a session that runs: looked at again and again, not remembered from its start.

klaud is paused by a variable of the repository or by a key of its configuration on the default branch; each is one ``Look``.
A look that fails says what it said before: a session is neither paused nor let go on by an error. One that the token may not
have is given up, and that is said once, because from then on only the other one is heard.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeAlias

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klaud import clock as clocks

Look: TypeAlias = "Callable[[], bool]"
"""Reads one switch. RetryLaterError: not to be had now; ForbiddenError: not with this token."""


class Switch:
    """Tells whether klaud is paused; looks at most once in ``seconds``. Safe to call from several threads."""

    def __init__(
        self,
        looks: Mapping[str, Look],
        *,
        clock: clocks.Clock,
        seconds: float,
        log: Callable[[str], None],
        paused: bool = False,
    ) -> None:
        """Take ``looks``: the switches by what they are called in the log; ``paused``: what was known at the start."""
        self._looks = dict(looks)
        self._said = dict.fromkeys(looks, False)
        self._clock = clock
        self._seconds = seconds
        self._log = log
        self._paused = paused
        self._next = clock.monotonic()
        self._lock = threading.Lock()

    def __call__(self) -> bool:
        """Return whether klaud is paused now, or was when it could be asked last."""
        with self._lock:
            if self._clock.monotonic() >= self._next:
                self._next = self._clock.monotonic() + self._seconds
                for name in list(self._looks):
                    self._ask(name)
            return self._paused or any(self._said.values())

    def _ask(self, name: str) -> None:
        try:
            said = self._looks[name]()
        except errors.ForbiddenError:
            del self._looks[name]
            self._log(f"pause: the token may not read {name}; a change of it is not seen by this session")
        except errors.KlaudError as error:
            self._log(f"pause: {name} could not be read ({type(error).__name__})")
        else:
            if said and not self._said[name]:
                self._log(f"pause: {name} says that klaud is paused")
            self._said[name] = said
