"""Read every open pull request with its files, and what it does to the families' files.

All pages, drafts and forks included, renamed files with their previous names. What could not be read is marked, never
left out: an incomplete listing, an incomplete file list, an entry that is unknown. Reads only.

Cost in requests: one a page of pull requests, one a pull request for its files, and for each pull request that touches a
family's file one for its merge base and two for each such file (the merge base's side is read once for all).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud import errors, names, yaml12
from klaud.github import model as github
from klaud.review import decide, model, prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from klaud.clock import Clock
    from klaud.github import gateway as gateways


def open_pulls(
    gateway: gateways.Gateway,
    candidates: Sequence[model.Candidate],
    policy: model.Policy,
    *,
    repository: str,
    clock: Clock,
) -> model.OpenPulls:
    """Return ``open-prs.json`` for these candidates. ReadFailedError where not even the first page could be had."""
    listing = gateway.open_pulls()
    reader = _Entries(gateway, policy)
    files = {names.split_family(candidate.family)[0] for candidate in candidates}
    return model.OpenPulls(
        repository=repository,
        at=clock.now(),
        pulls=tuple(_pull(gateway, reader, pull, files, policy, repository) for pull in listing.items),
        complete=listing.complete,
        why_not=listing.why_not,
    )


def _pull(  # noqa: PLR0917 - one pull request with everything that is read of it
    gateway: gateways.Gateway,
    reader: _Entries,
    pull: github.Pull,
    families: set[str],
    policy: model.Policy,
    repository: str,
) -> model.OpenPull:
    own = pull.head_repository == repository and names.candidate_of_branch(pull.head_ref) is not None
    files, complete = _files(gateway, pull.number)
    touched = sorted({path for file in files for path in (file.path, file.previous) if path in families})
    return model.OpenPull(
        number=pull.number,
        title=prompt.cut(pull.title, policy.title_characters),
        body=prompt.cut(pull.body, policy.body_characters),
        draft=pull.draft,
        author=pull.author.id if pull.author else None,
        head_repository=pull.head_repository,
        head_ref=pull.head_ref,
        head_oid=pull.head_oid,
        base_ref=pull.base_ref,
        files=files,
        files_complete=complete,
        entries=() if own else tuple(reader.touched(pull, touched)),
        own=own,
    )


def _files(gateway: gateways.Gateway, number: int) -> tuple[tuple[model.TouchedFile, ...], bool]:
    try:
        listing = gateway.pull_files(number)
    except errors.ReadFailedError:
        return (), False
    files = tuple(
        model.TouchedFile(path=file.path, status=file.status, previous=file.previous) for file in listing.items
    )
    return files, listing.complete


class _Entries:
    """Which top-level keys a pull request changes, with one read for each file of each commit, up to the policy's bound."""

    def __init__(self, gateway: gateways.Gateway, policy: model.Policy) -> None:
        self._gateway = gateway
        self._policy = policy
        self._reads = 0
        self._known: dict[tuple[str, str], dict[str, Any] | str | None] = {}

    def touched(self, pull: github.Pull, paths: Iterable[str]) -> Iterable[model.TouchedEntries]:
        base: str | None = None
        for path in paths:
            base = base or self._merge_base(pull)
            before = self._load(path, base) if base else "the merge base could not be read"
            after = self._load(path, pull.head_oid)
            if before is None and isinstance(after, dict):
                before = {}  # the pull request adds the file
            if isinstance(before, dict) and isinstance(after, dict):
                yield model.TouchedEntries(path=path, known=True, keys=decide.changed_keys(before, after))
            else:
                why = next((text for text in (before, after) if isinstance(text, str)), "the file is not there")
                yield model.TouchedEntries(path=path, known=False, why_not=why)

    def _merge_base(self, pull: github.Pull) -> str | None:
        try:
            base = self._gateway.merge_base(pull.base_ref, pull.head_oid)
        except errors.ReadFailedError:
            return None
        return base if isinstance(base, str) else None

    def _load(self, path: str, commit: str) -> dict[str, Any] | str | None:
        """Return the file's top-level mapping, None where the host has no such file, or in klaud's words why not."""
        if (path, commit) not in self._known:
            self._known[path, commit] = self._read(path, commit)
        return self._known[path, commit]

    def _read(self, path: str, commit: str) -> dict[str, Any] | str | None:
        if self._reads >= self._policy.contents_reads:
            return f"more than {self._policy.contents_reads} files would have to be read"
        self._reads += 1
        limit = self._policy.contents_bytes
        try:
            raw = self._gateway.contents(path, commit, limit)
            if isinstance(raw, github.Missing):
                return None
            data = yaml12.load(raw, where=path, limit=limit)
        except errors.ReadFailedError:
            return "the file could not be read"
        except errors.InputError:
            return "the file is not YAML that klaud reads"
        if data is None:
            return {}
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            return "the file is not a mapping of texts"
        return data
