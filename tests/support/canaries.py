"""A secret, searched for in whatever form it may have been hidden."""

from __future__ import annotations

import base64
import json
import urllib.parse


def encodings(secret: str) -> list[bytes]:
    """The secret as it may be hidden: plain, base64 at each offset, hex, URL, JSON's escapes, and backwards."""
    raw = secret.encode()
    shifts = [base64.b64encode(b"\0" * n + raw)[4 if n else 0 :].rstrip(b"=")[:-2] for n in range(3)]
    hidden = [
        raw,
        raw.hex().encode(),
        raw.hex().upper().encode(),
        raw[::-1],
        urllib.parse.quote(secret, safe="").encode(),
        json.dumps(secret)[1:-1].encode(),
    ]
    return [*hidden, *shifts, *(text.replace(b"+", b"-").replace(b"/", b"_") for text in shifts)]


def found(secret: str, text: bytes) -> bool:
    """Tell whether ``text`` holds the secret in any of these forms."""
    return any(hidden in text for hidden in encodings(secret) if len(hidden) > 6)
