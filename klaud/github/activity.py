"""When somebody last committed to a branch: GitHub switches schedules off where that is long ago."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import msgspec

from klaud import errors, names

if TYPE_CHECKING:
    from klaud.github import rest


class _Person(msgspec.Struct):
    date: datetime.datetime


class _Inner(msgspec.Struct):
    committer: _Person


class _Commit(msgspec.Struct):
    commit: _Inner


def committed(gateway: rest.RestGateway, branch: str) -> datetime.datetime:
    """Return when the newest commit of a branch was made (UTC); ReadFailedError where that cannot be read."""
    answer = gateway.ask("/commits/{ref}", f"/commits/{names.path_segment(branch)}", accept=(404, 422))
    message = f"the newest commit of {branch} cannot be read"
    if answer.status != 200:
        raise errors.ReadFailedError(f"{message}: HTTP {answer.status}")
    try:
        return msgspec.json.decode(answer.body.encode(), type=_Commit).commit.committer.date
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise errors.ReadFailedError(f"{message}: {str(error)[:200]}") from None
