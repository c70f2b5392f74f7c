"""One HTTP request as a value, with what must not be shown kept out of its text form. Pure."""

from __future__ import annotations


class Form:
    """The parts of a multipart body, as requests takes them: name -> (file name or None, content[, media type])."""

    __slots__ = ("parts",)

    def __init__(self, parts: dict[str, tuple[str | None, bytes] | tuple[str | None, bytes, str]]) -> None:
        self.parts = parts


class Call:
    """One request, with what must not be shown kept out of its text form."""

    __slots__ = ("body", "headers", "method", "url")

    def __init__(
        self, url: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | Form | None = None
    ) -> None:
        self.method = method
        self.url = url
        self.headers = {"Accept-Encoding": "identity", **(headers or {})}
        self.body = body

    def __repr__(self) -> str:
        """Show the method only: addresses and headers carry keys."""
        return f"<{self.method} call>"
