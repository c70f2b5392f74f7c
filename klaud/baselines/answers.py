"""What a generator's answer comes to: a matrix's entries, a refusal to learn from, or a failure with its reason code.

Pure. Output is read by the strict rules of ``klaud.records.codec`` (a name twice, NaN, half a character make it invalid),
and no word of a generator, of its output or its standard error, is in what is returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from klaud.baselines import commands, model
from klaud.records import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from klaud.baselines import settings

MAX_ENTRIES = 200_000
"""Entries of one matrix: the largest real one has 2,000."""


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a generator: what it was assumed to know, its command line, what it did."""

    state: commands.Known
    argv: tuple[str, ...]
    outcome: model.Outcome


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One family's part of a call. ``tries``: in order, the last one counts where the earlier ones were refusals.

    ``entries``: the family's own where one output was for several. ``shared``: the call's failure may be another
    family's. ``missing``: the call ended before this family's turn.
    """

    tries: tuple[Try, ...]
    entries: tuple[dict[str, Any], ...] | None = None
    shared: bool = False
    missing: bool = False


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A matrix's entries."""

    entries: tuple[dict[str, Any], ...]
    daemons: int = 0


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no matrix."""

    code: Any
    error: str


_OVER = {
    "processes": "it started more processes than it may",
    "memory": "it used more memory than it may",
    "output": "it printed more than it may",
    "inputs": "it changed the files that it was given",
}


class Reader:
    """Reads the answers of one layout's generators."""

    def __init__(self, layout: settings.Layout, generator: settings.Generator) -> None:
        self._layout = layout
        self._optional = generator.optional_arguments
        self._seconds = generator.bounds.seconds

    def used(self, state: commands.Known) -> list[str]:
        """Return the optional arguments that are given to a generator of which that is known."""
        return [each.argument for each in self._optional if each.argument not in state.dropped]

    def read(self, answer: Answer) -> tuple[Made | Failed | commands.Refusal, commands.Known]:
        """Return what an answer comes to, and what was known of the generator in the try that counts."""
        for this, following in zip(answer.tries, (*answer.tries[1:], None), strict=True):
            found = self._one(this, answer)
            if following is None or not isinstance(found, commands.Refusal):
                return found, this.state
            if learned(this.state, found) != following.state:
                return found, this.state
        raise AssertionError("an answer has a try")  # pragma: no cover - made with at least one

    def _one(self, this: Try, answer: Answer) -> Made | Failed | commands.Refusal:
        outcome = this.outcome
        if outcome.exceeded == "seconds":
            return Failed(code="generator-timeout", error=f"it took longer than {self._seconds:g} s")
        if outcome.exceeded:
            return Failed(code="generator-failed", error=_OVER[outcome.exceeded])
        if outcome.not_started:
            return Failed(code="generator-failed", error=f"its program could not be started ({outcome.not_started})")
        if outcome.exit != 0:
            literals = [word for word in self._layout.commands[this.state.alternative] if "{" not in word]
            refusal = commands.refusal(outcome.stderr, this.argv, self.used(this.state), literals)
            if refusal is not None:
                return refusal
            text = f"exit status {outcome.exit}" if outcome.exit > 0 else f"signal {-outcome.exit}"
            return Failed(code="generator-failed", error=text)
        entries = answer.entries
        if answer.missing:
            return Failed(code="generator-failed", error="it ended before this family's turn")
        if entries is None:
            parsed = parse(outcome.stdout, self._layout.output)
            if isinstance(parsed, str):
                return Failed(code="generator-output-invalid", error=parsed)
            entries = tuple(parsed)
        meanings = [each.meaning for each in self._optional if each.argument in this.state.dropped]
        return Made(entries=commands.keep(entries, meanings), daemons=outcome.daemons)


def learned(state: commands.Known, refused: commands.Refusal) -> commands.Known:
    """Return what is known of a generator after a refusal."""
    if refused.kind == "argument":
        return commands.Known(alternative=state.alternative, dropped=tuple(sorted({*state.dropped, *refused.names})))
    return commands.Known(alternative=state.alternative + 1)


def parse(output: bytes, form: str) -> list[dict[str, Any]] | str:
    """Return the entries that a generator printed, or what is wrong with its output, without a word of it."""
    lines = [output] if form == "json" else [line for line in output.split(b"\n") if line.strip()]
    values = []
    for line in lines:
        value = codec.decode_document(line)
        if isinstance(value, codec.Refused):
            return f"its output is no matrix: {codec.MEANING[value]}"
        values.append(value)
    found = values[0] if form == "json" else values
    if not isinstance(found, list):
        return "its output is no list"
    if len(found) > MAX_ENTRIES:
        return f"its output has more than {MAX_ENTRIES} entries"
    if not all(type(entry) is dict for entry in found):
        return "its output is no list of objects"
    return found


def divide(output: bytes, layout: settings.Layout, keys: Sequence[str]) -> dict[str, list[dict[str, Any]]] | None:
    """Return the entries of each of several families in one output, None where it is no matrix at all."""
    parsed = parse(output, layout.output)
    if isinstance(parsed, str):
        return None
    parts: dict[str, list[dict[str, Any]]] = {key: [] for key in keys}
    for entry in parsed:
        mine = parts.get(str(entry.get(layout.family_field)))
        if mine is not None:
            mine.append(entry)
    return parts
