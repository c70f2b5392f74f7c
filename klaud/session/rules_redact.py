"""Take secrets out of a text, or refuse the text: the one redactor, and it fails closed. Pure.

A secret is looked for as it stands, in base64 (both alphabets, at each of the three offsets in which it may lie in something
longer), in hex of either case, URL-quoted and escaped for JSON. What is left is then looked at once more, letters and digits
only: a secret that somebody has broken over lines or strewn with marks is not cut out of the middle, the whole text is
refused. So is a text that is too long to be searched, and anything that is no text.

Non-promise: a secret that was encrypted, compressed, reversed or sent a letter at a time is not recognised.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECRET_CHARACTERS = 8
"""A shorter value is no secret that anything could protect: redacting "1" would blacken every number."""
TEXT_CHARACTERS = 262_144
"""The longest text that is searched; the longest that is logged is the agent's stderr, a quarter of this."""
SHOWN = "[redacted]"

_NAMES = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTHORIZATION|PRIVATE|(?:^|_)KEY(?:_|$)|APIKEY", re.IGNORECASE
)
"""Variables whose value is a secret, by their name."""

_SHAPES = re.compile(
    r"gh[opsur]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|sk-ant-[A-Za-z0-9_-]{16,255}"
    r"|(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{12,4096}|(?<=://)[^/\s:@]{1,256}:[^/\s@]{1,4096}(?=@)"
)
"""What looks like a credential, whoever it belongs to."""

_MARKS = re.compile(r"\x1b\[[0-9;]*m|\\x|0x|[^0-9a-z]+")
"""What may stand between the letters of a secret that was broken up: colours, escapes of bytes, anything but letters."""


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the values of the environment that are secrets by their variable's name."""
    return frozenset(value for name, value in environ.items() if value and _NAMES.search(name))


def forms(secret: str) -> frozenset[str]:
    """Return every way in which ``secret`` is looked for; the search itself takes no notice of case."""
    raw = secret.encode("utf-8", "surrogateescape")
    found = {secret, raw.hex(), json.dumps(secret)[1:-1], urllib.parse.quote_plus(secret, errors="surrogateescape")}
    found |= {urllib.parse.quote(secret, safe=safe, errors="surrogateescape") for safe in ("", "/")}
    for offset in range(3):
        # the characters at both ends also hold bits of what stands beside the secret
        whole = base64.b64encode(b"\0" * offset + raw).decode()
        first = (0, 2, 3)[offset]
        last = (len(raw) + offset) * 8 // 6
        part = whole[first:last]
        if len(part) >= SECRET_CHARACTERS:
            found |= {part, part.replace("+", "-").replace("/", "_")}
    return frozenset(found)


class Redactor:
    """Knows the process's secrets. ``dropped`` counts the texts that were refused."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._bare: frozenset[str] = frozenset()
        self._pattern = re.compile("(?!)")
        self.dropped = 0
        self.learn(*secrets)

    def learn(self, *secrets: str) -> None:
        """Add secrets that became known later."""
        new = {form for secret in secrets if len(secret) >= SECRET_CHARACTERS for form in forms(secret)}
        self._forms |= {form.lower() for form in new}
        self._bare |= {bare for form in new if len(bare := _bare(form)) >= SECRET_CHARACTERS}
        longest = sorted(self._forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(re.escape(form) for form in longest) or "(?!)", re.IGNORECASE)

    def text(self, text: object) -> str | None:
        """Return ``text`` without secrets, or None (counted) where that cannot be promised."""
        cleaned = self._clean(text)
        if cleaned is None:
            self.dropped += 1
        return cleaned

    def tail(self, raw: bytes, *, limit: int) -> str | None:
        """Return the end of an output as text without secrets, or None (counted).

        ``limit``: how many bytes were kept. Where that many are there the beginning is cut, and so may be a secret in it:
        the first line is left out.
        """
        if len(raw) >= limit > 0:
            raw = raw.partition(b"\n")[2]
        return self.text(raw.decode("utf-8", "replace"))

    def _clean(self, text: object) -> str | None:
        if not isinstance(text, str) or len(text) > TEXT_CHARACTERS:
            return None
        lowered = text.lower()
        if any(form in lowered for form in self._forms):
            text = self._pattern.sub(SHOWN, text)
        text = _SHAPES.sub(SHOWN, text)
        bare = _bare(text)
        return None if any(form in bare for form in self._bare) else text


def _bare(text: str) -> str:
    return _MARKS.sub("", text.lower())
