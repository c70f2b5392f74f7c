"""Try the contracts one after the other, and take away what that made: at the end, and also where the run is ended early.

What is taken away is found from the host by its prefix and not from a memory of ours, so an unclear answer or a killed run
leaves nothing that ``tidy`` does not find later. What cannot be taken away is reported, never passed over.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any

import requests

from klaud import errors
from klaud.github.conformance import model, pulls, refs, runs
from klaud.github.conformance import target as targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from klaud.github.conformance.target import Target

CONTRACTS: tuple[model.Contract, ...] = (*refs.CONTRACTS, *pulls.CONTRACTS, *runs.CONTRACTS)

PAGES = 20
"""Most pages of 100 that are read of what a run may have left: a spare repository has fewer."""

BAD_FORM = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer raises that is not as promised."""

INTERRUPTED = "the run was interrupted"


def chosen(numbers: Sequence[str]) -> tuple[model.Contract, ...]:
    """Return the named contracts (``C07``, any case), all where none is named; InputError for a number that is none."""
    if not numbers:
        return CONTRACTS
    known = {one.name: one for one in CONTRACTS}
    wanted = [number.upper() for number in numbers]
    unknown = [number for number in wanted if number not in known]
    if unknown:
        message = f"there is no contract {', '.join(unknown)}"
        raise errors.InputError(message, advice="klaud conformance lists them; nothing was written.")
    return tuple(known[number] for number in dict.fromkeys(wanted))


def allowed(target: Target) -> None:
    """Ask whether the repository can be seen and written to, and has a commit; an error that says what to do where not."""
    try:
        answer = target.call("GET", "")
    except requests.RequestException as error:
        message = f"{target.url} does not answer: {type(error).__name__}"
        raise errors.ReadFailedError(message) from None
    if answer.status_code in {401, 403, 404} or answer.status_code in {301, 307, 308}:
        message = f"{target.repository}: HTTP {answer.status_code}"
        raise errors.ForbiddenError(message, advice="Hand in the token of an account that may write to the repository.")
    if answer.status_code != 200:
        message = f"{target.repository}: HTTP {answer.status_code}"
        raise errors.ReadFailedError(message)
    if not answer.json().get("permissions", {}).get("push", True):
        message = f"the token may not write to {target.repository}"
        raise errors.ForbiddenError(message)
    if target.call("GET", f"git/ref/heads/{answer.json()['default_branch']}").status_code in {404, 409}:
        message = f"{target.repository} has no commit yet"
        raise errors.InputError(message, advice="Commit a README there first; nothing was written.")


def used(target: Target) -> tuple[str, ...]:
    """Return what the repository has beside its default branch and an earlier run's leftovers; none where it is spare."""
    default = target.default_branch()
    branches = [row["name"] for row in _pages(target, "branches")]
    found = [f"branch {name}" for name in branches if name != default and not name.startswith(f"{targets.WORD}/")]
    rows = _pages(target, "pulls?state=open")
    found += [f"pull request #{row['number']}" for row in rows if not _is_of(target, row, f"{targets.WORD}/")]
    return tuple(found)


def conform(
    target: Target, contracts: Sequence[model.Contract], tell: Callable[[model.Ended], None]
) -> tuple[model.Report, errors.RetryLaterError | None]:
    """Try the contracts, then tidy up; ``tell`` hears of each as it ends.

    The second value is the host's refusal to answer any more (its rate limit), where that ended the run. Ctrl-C and
    whatever else raises KeyboardInterrupt ends it too; the tidying follows all the same.
    """
    ended: list[model.Ended] = []
    stopped, limit, interrupted = "", None, False

    def end(contract: model.Contract, result: Any, why: str) -> None:
        one = model.Ended(contract.name, contract.claim, result, why[: model.WHY_CHARS])
        ended.append(one)
        tell(one)

    for contract in contracts:
        if stopped:
            end(contract, "skip", stopped)
            continue
        try:
            end(contract, *_tried(contract, target))
        except KeyboardInterrupt:
            stopped, interrupted = INTERRUPTED, True
            end(contract, "skip", stopped)
        except errors.RetryLaterError as error:
            stopped, limit = str(error), error
            end(contract, "skip", stopped)
    left = tidy(target, target.prefix)
    host = urllib.parse.urlsplit(target.url).netloc
    report = model.Report(
        repository=target.repository, host=host, contracts=tuple(ended), left=left, interrupted=interrupted
    )
    return report, limit


def _tried(contract: model.Contract, target: Target) -> tuple[str, str]:
    """Try one contract; return its result and why."""
    try:
        contract.do(target)
    except model.NotHereError as why:
        return "skip", str(why)
    except model.BrokenError as why:
        return "fail", str(why)
    except requests.RequestException as error:
        return "fail", f"no answer: {type(error).__name__}"
    except BAD_FORM as error:
        return "fail", f"an answer has not the form that was promised: {type(error).__name__}: {error}"
    return "pass", ""


def tidy(target: Target, prefix: str) -> tuple[str, ...]:
    """Cancel runs, close pull requests, delete branches and labels of ``prefix``; return what could not be taken away."""
    left: list[str] = []
    for step in (_cancel, _close, _delete, _unlabel):
        try:
            left += step(target, prefix)
        except (
            requests.RequestException,
            errors.KlaudError,
            model.BrokenError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            left.append(f"{step.__name__.strip('_')}: {type(error).__name__}: {error}"[: model.WHY_CHARS])
    return tuple(left)


def _cancel(target: Target, prefix: str) -> Iterator[str]:
    nonce = prefix.removeprefix(f"{targets.WORD}/").rstrip("/")
    for row in _pages(target, f"{runs.FLOW}/runs?event=workflow_dispatch", key="workflow_runs", absent=(404,)):
        if row["status"] != "completed" and str(row["display_title"]).startswith(f"contract {nonce}"):
            answer = target.call("POST", f"actions/runs/{row['id']}/cancel")
            if answer.status_code not in {202, 409}:
                yield f"run {row['id']}: HTTP {answer.status_code}"


def _close(target: Target, prefix: str) -> Iterator[str]:
    for row in _pages(target, "pulls?state=open"):
        if _is_of(target, row, prefix):
            answer = target.call("PATCH", f"pulls/{row['number']}", {"state": "closed"})
            if answer.status_code != 200:
                yield f"pull request #{row['number']}: HTTP {answer.status_code}"


def _delete(target: Target, prefix: str) -> Iterator[str]:
    for row in _pages(target, f"git/matching-refs/heads/{urllib.parse.quote(prefix)}"):
        name = row["ref"].removeprefix("refs/")
        answer = target.call(
            "DELETE", f"git/refs/{'/'.join(urllib.parse.quote(one, safe='') for one in name.split('/'))}"
        )
        if answer.status_code not in {204, 422}:
            yield f"{row['ref']}: HTTP {answer.status_code}"


def _unlabel(target: Target, prefix: str) -> Iterator[str]:
    del prefix  # labels are the repository's, whichever run made them
    for label in targets.LABELS:
        answer = target.call("DELETE", f"labels/{urllib.parse.quote(label, safe='')}")
        if answer.status_code not in {204, 404}:
            yield f"label {label}: HTTP {answer.status_code}"


def _is_of(target: Target, row: dict[str, Any], prefix: str) -> bool:
    head = row["head"]
    return bool((head.get("repo") or {}).get("full_name") == target.repository and head["ref"].startswith(prefix))


def _pages(target: Target, path: str, *, key: str = "", absent: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Return all rows of a listing, read whole before anything is changed that would move its pages."""
    rows: list[dict[str, Any]] = []
    answer = target.call("GET", f"{path}{'&' if '?' in path else '?'}per_page=100")
    if answer.status_code in absent:
        return rows
    for _ in range(PAGES):
        model.same(answer.status_code, 200, f"the status of {path}")
        body = answer.json()
        rows += body[key] if key else body
        if "next" not in answer.links:
            return rows
        answer = target.follow(answer, "next")
    message = f"{path}: more than {PAGES} pages"
    raise errors.ReadFailedError(message, advice="Use a spare repository.")
