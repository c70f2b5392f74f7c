"""The error tree, ordered by what the caller should do.

Every error a person may meet carries two sentences: what happened and where (``str(error)``), and what to do
(``error.advice``). ``exit_status`` is the process's status when the error ends a command:

====== ==========================================================================
status meaning
====== ==========================================================================
0      done, or nothing to do
1      finished, but something needs a person (a red sweep, a failed session)
2      the input is wrong: command line, configuration, scene, record; nothing was written
3      not permitted: the token or its account lacks a right; nothing was retried
4      ownership lost: another run holds what this one wanted; nothing was written
70     klaud's own fault
75     temporary: try the same again later
====== ==========================================================================

An expected "no" (a claim that another run holds) is a value of the operation, not an error of this module.
"""

from __future__ import annotations


class KlaudError(Exception):
    """Base of every error klaud raises on purpose. ``advice`` is one sentence on what to do."""

    exit_status = 70
    advice = "This is a fault in klaud: please report it with the command and its output."

    def __init__(self, message: str, *, advice: str | None = None) -> None:
        """``message`` says what happened and where; ``advice``, when given, replaces the class's sentence."""
        super().__init__(message)
        if advice is not None:
            self.advice = advice


class InputError(KlaudError):
    """What a person or a file handed in is wrong. Never retry; change the input."""

    exit_status = 2
    advice = "Correct the input and run the command again; nothing was written."


class MissingToolError(InputError):
    """A program that klaud starts (git, the agent) is not installed or not usable."""

    advice = "Install the program, or put it on PATH, and run the command again; nothing was written."


class ForbiddenError(KlaudError):
    """The token is refused or lacks a right. Never retry; a person must change the credential or its rights."""

    exit_status = 3
    advice = "Use a token that is valid here and has the permission needed (klaud doctor checks what a token may do)."


class OwnershipLostError(KlaudError):
    """A claim or lease that this process held is now another's. Stop writing at once."""

    exit_status = 4
    advice = "Nothing to do: another run has this candidate in hand."


class RetryLaterError(KlaudError):
    """A temporary failure that outlived the retry policy. ``after`` is the least wait in seconds, if the host named one."""

    exit_status = 75
    advice = "Run the same command again later."

    def __init__(self, message: str, *, after: float | None = None, advice: str | None = None) -> None:
        """``after``: seconds the host asked for, or None."""
        super().__init__(message, advice=advice)
        self.after = after


class ReadFailedError(RetryLaterError):
    """A read could not be completed; whatever it would have shown is unknown (never "absent")."""


class UnclearWriteError(RetryLaterError):
    """A write got no clear answer (a time-out, a 5xx, a cut connection). Read back; never repeat it blindly."""

    advice = "Do not repeat the write: read the object back first (the next klaud recover does)."


class RefusedWriteError(KlaudError):
    """The host said a clear no to a write (a 4xx). ``status`` is the HTTP status, ``reason`` the host's own words, cut."""

    exit_status = 1
    advice = "The write did not happen; the message names what the host objected to."

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        """``status``: the HTTP status code (0 for git)."""
        super().__init__(message)
        self.status = status
        self.reason = reason


class BugError(KlaudError):
    """A promise inside klaud was broken (an impossible state). Report it."""
