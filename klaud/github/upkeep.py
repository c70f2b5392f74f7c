"""What klaud leaves in a repository beside refs: labels and variables, read and taken away by their exact names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from klaud import errors, names

if TYPE_CHECKING:
    from klaud.github import rest


class _Label(msgspec.Struct):
    name: str
    description: str | None = None


class _Variables(msgspec.Struct):
    variables: list[_Label]


def label(gateway: rest.RestGateway, name: str) -> str | None:
    """Return what a label says of itself, None where there is no such label."""
    answer = gateway.ask("/labels/{name}", f"/labels/{names.path_segment(name)}", accept=(404,))
    if answer.status == 404:
        return None
    try:
        return msgspec.json.decode(answer.body.encode(), type=_Label).description or ""
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        message = f"the label {name} cannot be read: {str(error)[:200]}"
        raise errors.ReadFailedError(message) from None


def delete_label(gateway: rest.RestGateway, name: str) -> None:
    """Delete a label of the repository."""
    gateway.take_away("/labels/{name}", f"/labels/{names.path_segment(name)}")


def variables(gateway: rest.RestGateway) -> frozenset[str] | None:
    """Return the names of the repository's first 100 variables, None where the token may not look."""
    try:
        answer = gateway.ask("/actions/variables", "/actions/variables?per_page=100", accept=(404,))
    except errors.ForbiddenError:
        return None
    if answer.status == 404:
        return None
    try:
        rows = msgspec.json.decode(answer.body.encode(), type=_Variables).variables
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        message = f"the repository's variables cannot be read: {str(error)[:200]}"
        raise errors.ReadFailedError(message) from None
    return frozenset(one.name for one in rows)


def delete_variable(gateway: rest.RestGateway, name: str) -> None:
    """Delete a variable of the repository."""
    gateway.take_away("/actions/variables/{name}", f"/actions/variables/{name}")
