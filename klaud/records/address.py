"""Which addresses klaud reads from: https, or http to this very machine; no credentials in them. Pure."""

from __future__ import annotations

import ipaddress
import urllib.parse

ADDRESS_CHARACTERS = 4096
"""Longer than any address that a server accepts."""


def why_refused(url: object) -> str | None:
    """Return in klaud's words why ``url`` is not read from, or None where it may be. Shows nothing of the address."""
    if not isinstance(url, str) or len(url) > ADDRESS_CHARACTERS:
        return "the address is not a text of reasonable length"
    if not url.isascii() or any(char <= " " or char in "\x7f\\" for char in url):
        return "the address has characters that an address cannot have"
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "the address cannot be read"
    if parts.scheme not in {"http", "https"}:
        return "the address is neither https nor http"
    if not host or port == 0:
        return "the address names no host"
    if parts.username is not None or parts.password is not None:
        return "the address has credentials in it"
    if parts.scheme == "http" and not is_loopback(host):
        return "the address is http, and not of this machine"
    return None


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is this machine: localhost, or an address of the loopback network."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
