"""``StreamError``: what went wrong with a record stream, without a byte of what was in it.

Promises: the message is klaud's own words; ``details`` holds only names of the closed list below, with numbers and closed
words as values; ``__cause__`` and ``__context__`` are empty, because the error is built inside a handler and raised after
the handler has ended (``raise ... from None`` would still keep ``__context__``). Never in it: line text, bytes, URLs,
headers, keys, a provider's body, a decoder's message.
"""

from __future__ import annotations

from typing import Final

from klaud import errors

DETAILS: Final = frozenset({
    "file_kind", "line_number", "file_line_number", "batch_line_count", "limit_lines", "limit_bytes", "bytes_buffered",
    "limit_records", "record_count", "declared_bytes", "bytes_read", "chunk_bytes", "error_type", "byte_offset",
    "response_type", "timeout_seconds",
    "batch_id", "batch_status",
})  # fmt: skip
"""Every name that ``details`` may have. The last two only where the code is in ``BATCH_CODES``."""

BATCH_CODES: Final = frozenset({"batch-not-complete", "batch-no-file"})

_INPUT = 2
_FORBIDDEN = 3
_LOST = 4
_FAULT = 70
_TEMPORARY = 75

_CODES: Final[dict[str, tuple[int, str]]] = {
    "invalid-limit": (_INPUT, "Set the named limit to a positive whole number."),
    "invalid-argument": (_INPUT, "Correct the argument that the message names."),
    "invalid-chunk": (_FAULT, "The reader handed over what no reader should: report it with the reader's name."),
    "download-limit": (_INPUT, "The file is larger than klaud reads; split it, or raise the file limit."),
    "line-too-long": (_INPUT, "Find the named line in the source and shorten it, or raise the line limit."),
    "too-many-lines": (_INPUT, "Split the source, or raise the limit of lines."),
    "too-many-records": (_INPUT, "Split the source, or raise the limit of records."),
    "invalid-record": (_INPUT, "Correct the named line in the source: one JSON object a line, UTF-8, no name twice."),
    "stream-closed": (_FAULT, "A stream is read once, inside its with block; open it again to read it again."),
    "connection-failed": (_TEMPORARY, "Check that the host can be reached, then run the same command again."),
    "tls-failed": (_INPUT, "Check the host's certificate and this machine's clock; klaud does not try again."),
    "address-refused": (_INPUT, "Use an https address (http only to this machine), without credentials in it."),
    "redirected": (_INPUT, "Configure the final address; klaud follows no redirect here."),
    "response-status": (_INPUT, "Check the address and the key; the status says what the host objected to."),
    "response-forbidden": (_FORBIDDEN, "Check the key and its rights; the host refused it."),
    "response-unavailable": (_TEMPORARY, "The host is busy or down: run the same command again later."),
    "response-invalid": (_INPUT, "The host's answer is not what its interface promises; check the address."),
    "response-too-large": (_INPUT, "The answer is larger than klaud reads here; check the address."),
    "body-failed": (_TEMPORARY, "The connection broke while reading; run the same command again (it resumes)."),
    "read-timeout": (_TEMPORARY, "The host sent nothing for too long; run the same command again (it resumes)."),
    "deadline-exceeded": (_TEMPORARY, "The caller's deadline has passed; allow more time, or run it again."),
    "close-failed": (_TEMPORARY, "The connection could not be closed in time and was discarded; nothing to do."),
    "batch-not-complete": (_TEMPORARY, "Wait until the batch has ended, then read it again."),
    "batch-no-file": (_INPUT, "The batch ended without a result or error file: create a new one."),
    "batch-mismatch": (_INPUT, "The host answered about another batch; check the base address."),
    "batch-incomplete": (_TEMPORARY, "The file has fewer records than the batch counted; read it again."),
    "checkpoint-mismatch": (_INPUT, "The file is not the one the checkpoint was made on; remove the checkpoint first."),
    "checkpoint-conflict": (_LOST, "Another reader moved this checkpoint; stop this one."),
    "checkpoint-invalid": (_INPUT, "The checkpoint file is damaged; remove it to start this batch from its beginning."),
    "feed-unavailable": (_TEMPORARY, "The feed cannot be had now: run the same command again later."),
    "feed-invalid": (_INPUT, "The feed answered, but not with what was asked for; check its address and its content."),
}
"""Every code, with the exit status and the advice that go with it."""

CODES: Final = frozenset(_CODES)


class StreamError(errors.KlaudError):
    """A stream failed. ``code`` is one of ``CODES``, ``status`` the HTTP status where a response had one."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int | None = None,
        details: dict[str, int | float | str] | None = None,
        advice: str | None = None,
    ) -> None:
        """Refuse an unknown code, or a detail that is not on the list: an error must not become a leak by a typo."""
        exit_status, sentence = _CODES[code]
        super().__init__(message, advice=advice or sentence)
        kept = dict(details or {})
        if not kept.keys() <= DETAILS or (kept.keys() & {"batch_id", "batch_status"} and code not in BATCH_CODES):
            raise errors.BugError(f"a stream error of code {code} was given a detail that is not on the list")
        self.code = code
        self.status = status
        self.details = kept
        self.exit_status = exit_status

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the same fields, so that a child process can hand an error over."""
        return (_rebuild, (str(self), self.code, self.status, self.details, self.advice))

    def again(self) -> StreamError:
        """Return an equal error without a traceback, for a stream that is asked again after it failed."""
        return _rebuild(str(self), self.code, self.status, self.details, self.advice)


def _rebuild(
    message: str, code: str, status: int | None, details: dict[str, int | float | str], advice: str
) -> StreamError:
    return StreamError(message, code=code, status=status, details=details, advice=advice)
