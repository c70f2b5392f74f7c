"""Ids, ref names and URL path segments, each reversible.

A family is one key of one master configuration file, written ``<file>:<key>``. Its id is the first 16 hex digits of the
SHA-256 of that text; a candidate is ``<family id>-<subject id>``; a wave is ``<run id>.<attempt>`` or ``local-<16 hex>``.
Ref names are built and parsed here only, so that a name that is *almost* klaud's (a longer branch, another prefix, upper
case) is never taken for one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import urllib.parse
from typing import TypeAlias

from klaud import errors

DEFAULT_PREFIX = "refs/klaud"
"""Where klaud keeps its state; the setting ``refs-prefix`` changes it."""

BRANCH_HEAD = "klaud/auto-"
"""What the name of every branch of a candidate begins with (below ``refs/heads/``)."""

HANDOFF_LABEL = "klaud-handoff"
"""A maintainer adds this label to take a draft over."""

_HEX16 = r"[0-9a-f]{16}"
_CANDIDATE = re.compile(rf"({_HEX16})-({_HEX16})")
_WAVE = re.compile(rf"(?:[1-9][0-9]{{0,19}}\.[1-9][0-9]{{0,5}}|local-{_HEX16})")
_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SESSION = re.compile(rf"({_WAVE.pattern})-({_HEX16}-{_HEX16})")
_FORERUNNER_CLAIM = re.compile(r"refs/heads/klaud/claim-([A-Za-z0-9._-]{1,128})")
_FORERUNNER_LEASE = re.compile(r"refs/heads/klaud/recovery-([A-Za-z0-9._-]{1,200})")
_ARCHIVE = re.compile(r"([a-z][a-z-]{0,30})/([A-Za-z0-9._-]{1,200})/([0-9a-f]{40}(?:[0-9a-f]{24})?)")


def short_id(text: str) -> str:
    """Return the 16 hex digits by which ``text`` is known in ids and ref names (SHA-256, first 8 bytes)."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def family_text(file: str, key: str) -> str:
    """Return a family's name as it is written everywhere: ``<file>:<key>``."""
    return f"{file}:{key}"


def split_family(text: str) -> tuple[str, str]:
    """Return (file, key) of a family's name; ValueError where it is not one."""
    file, colon, key = text.partition(":")
    if not (file and colon and key):
        msg = f"{text!r} is not a family: expected <file>:<key>"
        raise ValueError(msg)
    return file, key


def candidate_id(family: str, subject: str) -> str:
    """Return the candidate's id: ``family`` is ``<file>:<key>``, ``subject`` a canonical text of what would change."""
    return f"{short_id(family)}-{short_id(subject)}"


def is_candidate(text: str) -> bool:
    """Tell whether ``text`` is exactly a candidate's id."""
    return _CANDIDATE.fullmatch(text) is not None


def is_wave(text: str) -> bool:
    """Tell whether ``text`` is exactly a wave's id."""
    return _WAVE.fullmatch(text) is not None


def is_oid(text: str) -> bool:
    """Tell whether ``text`` is a full object id (40 or 64 hex digits, lower case)."""
    return _OID.fullmatch(text) is not None


def family_of(candidate: str) -> str:
    """Return the family id (16 hex) in a candidate's id."""
    return candidate.partition("-")[0]


def branch(candidate: str) -> str:
    """Return the branch of a candidate, without ``refs/heads/``."""
    return BRANCH_HEAD + candidate


def candidate_of_branch(name: str) -> str | None:
    """Return the candidate whose branch ``name`` exactly is (without ``refs/heads/``), else None."""
    rest = name.removeprefix(BRANCH_HEAD)
    return rest if rest != name and is_candidate(rest) else None


def run_marker(wave: str, candidate: str) -> str:
    """Return the marker that a candidate run carries in its run name, by which it is found."""
    return f"[klaud {wave}-{candidate}]"


def path_segment(text: str) -> str:
    """Return ``text`` as one URL path segment: everything but unreserved characters is percent-encoded, ``/`` too.

    InputError for an empty text, ``.`` and ``..``: no encoding keeps a client from reading these as another address, and
    a label's removal without its name removes them all.
    """
    if text in {"", ".", ".."}:
        msg = f"{text!r} cannot be part of an address on the host"
        raise errors.InputError(msg, advice="Give the label, branch, file or workflow another name.")
    return urllib.parse.quote(text, safe="")


def path_of_ref(ref: str) -> str:
    """Return a ref or branch name for a URL path: each segment encoded, ``/`` kept (oddity L53)."""
    return "/".join(path_segment(part) for part in ref.split("/"))


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimRef:
    """Whose work a family is."""

    family: str


@dataclasses.dataclass(frozen=True, slots=True)
class SessionRef:
    """The ledger of one session."""

    wave: str
    candidate: str


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseRef:
    """The recovery pass that has a dead session in hand."""

    wave: str
    candidate: str


@dataclasses.dataclass(frozen=True, slots=True)
class ArchiveRef:
    """What was there before a destructive act."""

    kind: str
    name: str
    oid: str


@dataclasses.dataclass(frozen=True, slots=True)
class TombstoneRef:
    """A candidate that a person closed."""

    candidate: str


@dataclasses.dataclass(frozen=True, slots=True)
class FamilyRef:
    """What later waves must remember of a family."""

    family: str


@dataclasses.dataclass(frozen=True, slots=True)
class ObservedRef:
    """What later sweeps must remember."""


@dataclasses.dataclass(frozen=True, slots=True)
class BranchRef:
    """The agent's work on one candidate."""

    candidate: str


@dataclasses.dataclass(frozen=True, slots=True)
class ForerunnerClaimRef:
    """A claim as the forerunner wrote it (``refs/heads/klaud/claim-<name>``)."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ForerunnerLeaseRef:
    """A lease as the forerunner wrote it (``refs/heads/klaud/recovery-<name>``)."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class ForeignRef:
    """A ref below klaud's prefixes that is none of the above: never touched, reported."""

    ref: str


KlaudRef: TypeAlias = (
    ClaimRef
    | SessionRef
    | LeaseRef
    | ArchiveRef
    | TombstoneRef
    | FamilyRef
    | ObservedRef
    | BranchRef
    | ForerunnerClaimRef
    | ForerunnerLeaseRef
    | ForeignRef
)


@dataclasses.dataclass(frozen=True, slots=True)
class RefNames:
    """Ref names below one prefix, built and parsed; ``parse(x.build(y)) == y`` for every kind."""

    prefix: str = DEFAULT_PREFIX

    def claim(self, family: str) -> str:
        """Name the claim of a family (16 hex)."""
        return f"{self.prefix}/claims/{family}"

    def session(self, wave: str, candidate: str) -> str:
        """Name a session's ledger."""
        return f"{self.prefix}/sessions/{wave}-{candidate}"

    def lease(self, wave: str, candidate: str) -> str:
        """Name the lease on a session."""
        return f"{self.prefix}/leases/{wave}-{candidate}"

    def archive(self, kind: str, name: str, oid: str) -> str:
        """Name an archive copy; ``name`` is the last segment of what was archived."""
        return f"{self.prefix}/archive/{kind}/{name}/{oid}"

    def tombstone(self, candidate: str) -> str:
        """Name the tombstone of a candidate."""
        return f"{self.prefix}/tombstones/{candidate}"

    def family(self, family: str) -> str:
        """Name the memory of a family (16 hex)."""
        return f"{self.prefix}/families/{family}"

    def observed(self) -> str:
        """Name the sweeps' own memory."""
        return f"{self.prefix}/observed"

    def branch(self, candidate: str) -> str:
        """Name a candidate's branch in full."""
        return f"refs/heads/{BRANCH_HEAD}{candidate}"

    def listed_prefixes(self) -> tuple[str, ...]:
        """Return the prefixes below which klaud's refs live, the forerunner's included."""
        return (f"{self.prefix}/", "refs/heads/klaud/")

    def parse(self, ref: str) -> KlaudRef:  # noqa: PLR0911 - one return for each kind of ref is the table itself
        """Return what ``ref`` is; anything not exactly of a known form is a ForeignRef."""
        if ref.startswith("refs/heads/"):
            candidate = candidate_of_branch(ref.removeprefix("refs/heads/"))
            if candidate is not None:
                return BranchRef(candidate)
            if match := _FORERUNNER_CLAIM.fullmatch(ref):
                return ForerunnerClaimRef(match[1])
            if match := _FORERUNNER_LEASE.fullmatch(ref):
                return ForerunnerLeaseRef(match[1])
            return ForeignRef(ref)
        rest = ref.removeprefix(self.prefix + "/")
        if rest == ref:
            return ForeignRef(ref)
        kind, _, name = rest.partition("/")
        match kind:
            case "claims" if re.fullmatch(_HEX16, name):
                return ClaimRef(name)
            case "families" if re.fullmatch(_HEX16, name):
                return FamilyRef(name)
            case "sessions" if match := _SESSION.fullmatch(name):
                return SessionRef(match[1], match[2])
            case "leases" if match := _SESSION.fullmatch(name):
                return LeaseRef(match[1], match[2])
            case "tombstones" if is_candidate(name):
                return TombstoneRef(name)
            case "archive" if match := _ARCHIVE.fullmatch(name):
                return ArchiveRef(match[1], match[2], match[3])
            case "observed" if not name:
                return ObservedRef()
            case _:
                return ForeignRef(ref)
