"""The gateway over HTTP: ``klaud.github.gateway.Gateway`` on REST and GraphQL, for one repository and one token.

Theory: every method is one line of what to ask, one decoder, and what its statuses mean. How listings are paged is in
``paging``, how pull requests are read in batches in ``pulls``, what a bad answer means in ``decode_errors``, how often it is
tried in ``retry``, how it is sent in ``sender``.

Promises: as the protocol says; no write is sent twice (a rate limit's refusal and an unknown dispatch field apart, which
have no effect). Non-promises: no caching, no conditional requests, no objects of PyGithub.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from klaud import errors, names
from klaud.github import decode, decode_graphql, graphql, model, paging, pulls, retry, sender

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from klaud import clock as clocks
    from klaud.github import app, gateway

REPO = "/repos/{owner}/{repo}"
GRAPHQL = "/graphql"

FRESH = 60.0
"""Seconds after which a 404 of our own pull request is believed: GitHub's replicas are seconds behind, not minutes."""

NOTHING_DONE = (400, 404, 409, 422)
"""Statuses that answer a request which names nothing to be done: the right was not what it failed on."""

LIMIT_WORD_WITHIN = 2000
"""Characters of a GraphQL answer in which a spent rate limit is looked for: such an answer has no data before its errors."""

FILES_LIMIT = 3000
"""Files of a pull request that GitHub serves at most; as many may be more."""


class RestGateway:
    """GitHub as klaud asks it. Close it when done (or let the process end)."""

    def __init__(
        self,
        *,
        repository: str,
        token: str | app.AppToken,
        api_url: str = "https://api.github.com",
        clock: clocks.Clock,
        policy: retry.Policy | None = None,
        seconds_between_writes: float | None = None,
    ) -> None:
        """``repository`` is ``owner/name``; ``api_url`` the REST root, from which the GraphQL address follows.

        ``seconds_between_writes``: by default ``sender.SPACING``, and none on this machine's own loopback address.
        """
        owner, _, name = repository.partition("/")
        if not owner or not name or "/" in name:
            msg = f"{repository!r} is not a repository: expected owner/name"
            raise errors.InputError(msg)
        self._repository = repository
        self.owner, self.name = owner, name
        self._base = f"/repos/{names.path_segment(owner)}/{names.path_segment(name)}"
        spacing = sender.spacing_for(api_url) if seconds_between_writes is None else seconds_between_writes
        self._clock = clock
        self._made: dict[int, float] = {}
        self._sender = sender.Sender(
            token=token, api_url=api_url, clock=clock, policy=policy or retry.Policy(), spacing=spacing
        )
        self._paging = paging.Pager(self._sender)
        self._pulls = pulls.PullReader(self.query, owner=owner, name=name)

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests sent so far by endpoint template."""
        return dict(self._sender.requests)

    @property
    def writes(self) -> Sequence[str]:
        """The writes sent so far, in order."""
        return tuple(self._sender.writes)

    @property
    def rate_limit(self) -> model.RateLimit:
        """What the newest answer's headers said of the rate limit."""
        return self._sender.rate_limit

    @property
    def waits(self) -> Sequence[float]:
        """Seconds of every wait that a rate limit or a failing host made necessary."""
        return tuple(self._sender.pace.waited)

    # -- who and where
    def account(self) -> model.Account:
        """Return the token's own account; for an app's installation token (``GET /user`` refuses it) GraphQL's viewer."""
        try:
            return decode_or_fail(decode.account, self._sender.send("GET", "/user", "/user"))
        except errors.ForbiddenError:
            found = decode_graphql.viewer(self.query(graphql.VIEWER, {}, root=""))
            if found is None:
                raise
            return found

    def repository(self) -> model.Repository:
        """Return the repository with the token's permissions on it."""
        answer = self._sender.send("GET", REPO, self._base, accept=(404,))
        if answer.status == 404:
            msg = f"the repository {self._repository} does not exist, or the token may not see it (HTTP 404)"
            raise errors.ForbiddenError(msg, advice="Check the name, or give the token access to this repository.")
        return decode_or_fail(decode.repository, answer)

    def may_write(self, account: model.Account) -> bool:
        """Tell whether an account may push here."""
        path = f"/collaborators/{names.path_segment(account.login)}/permission"
        answer = self._get("/collaborators/{username}/permission", path, accept=(404,))
        return answer.status != 404 and decode_or_fail(decode.may_write, answer) == account.id

    def variable(self, name: str) -> str | model.Missing:
        """Return a variable of the repository."""
        answer = self._get("/actions/variables/{name}", f"/actions/variables/{names.path_segment(name)}", accept=(404,))
        return self._found(answer, decode.variable, f"variable {name}")

    def check_right(self, right: gateway.WriteRight, workflow: str = "") -> None:
        """Ask for a write that names nothing to be done; only a refused right raises."""
        template, path = "/pulls", "/pulls"
        if right == "actions:write":
            template = "/actions/workflows/{workflow_id}/dispatches"
            path = f"/actions/workflows/{names.path_segment(workflow)}/dispatches"
        try:
            self._sender.send("POST", REPO + template, self._base + path, body={}, accept=NOTHING_DONE)
        except errors.ForbiddenError as error:
            raise errors.ForbiddenError(f"{error} (the token lacks {right})", advice=error.advice) from error

    # -- runs
    def run(self, run_id: int) -> model.Run | model.Missing:
        """Return one run by id."""
        answer = self._get("/actions/runs/{run_id}", f"/actions/runs/{run_id}", accept=(404,))
        return self._found(answer, decode.run, f"run {run_id}")

    def runs(
        self,
        *,
        status: str | None = None,
        actor: str | None = None,
        head_sha: str | None = None,
        event: str | None = None,
        branch: str | None = None,
        created: str | None = None,
        workflow: str | None = None,
    ) -> model.Listing[model.Run]:
        """List runs; above the 1,000 rows GitHub serves, older ones are asked for by their creation time."""
        given = {
            "status": status,
            "actor": actor,
            "head_sha": head_sha,
            "event": event,
            "branch": branch,
            "created": created,
        }
        query = {key: value for key, value in given.items() if value is not None}
        template, path = "/actions/runs", "/actions/runs"
        if workflow is not None:
            template = "/actions/workflows/{workflow_id}/runs"
            path = f"/actions/workflows/{names.path_segment(workflow)}/runs"
        return self._paging.runs(REPO + template, self._base + path, query)

    def jobs(self, run_id: int, attempt: int | None = None) -> model.Listing[model.Job]:
        """List the jobs of a run's newest attempt, or of the named one."""
        if attempt is None:
            return self._list(
                "/actions/runs/{run_id}/jobs", f"/actions/runs/{run_id}/jobs", decode.jobs, {"filter": "latest"}
            )
        return self._list(
            "/actions/runs/{run_id}/attempts/{attempt_number}/jobs",
            f"/actions/runs/{run_id}/attempts/{attempt}/jobs",
            decode.jobs,
        )

    def artifacts(self, run_id: int) -> model.Listing[model.Artifact]:
        """List a run's artifacts."""
        return self._list("/actions/runs/{run_id}/artifacts", f"/actions/runs/{run_id}/artifacts", decode.artifacts)

    def download_artifact(self, artifact_id: int, limit: int) -> bytes:
        """Return the zip of one artifact, at most ``limit`` bytes."""
        template = REPO + "/actions/artifacts/{artifact_id}/{archive_format}"
        return self._sender.download(template, f"{self._base}/actions/artifacts/{artifact_id}/zip", limit=limit)

    def workflow(self, file: str) -> model.Workflow | model.Missing:
        """Return one workflow by file name."""
        path = f"/actions/workflows/{names.path_segment(file)}"
        answer = self._get("/actions/workflows/{workflow_id}", path, accept=(404,))
        return self._found(answer, decode.workflow, f"workflow {file}")

    # -- pull requests
    def pulls_of_heads(self, heads: Sequence[str]) -> Mapping[str, model.Listing[model.PullDetail]]:
        """Return the pull requests of exactly these heads in this repository, batched."""
        return self._pulls.of_heads(heads)

    def pull_details(self, numbers: Sequence[int]) -> Mapping[int, model.PullDetail | model.Missing]:
        """Return pull requests by number with commits and timeline, batched."""
        return self._pulls.of_numbers(numbers)

    def pull(self, number: int) -> model.Pull | model.Missing:
        """Return one pull request (REST). One that this client made moments ago is waited for (oddity L45)."""

        def seen(answer: sender.Answer) -> None:
            made = self._made.get(number)
            if answer.status == 404 and made is not None and self._clock.monotonic() - made < FRESH:
                raise retry.Again(
                    errors.ReadFailedError(f"pull request {number} was made moments ago and is not seen yet")
                )

        path = f"{self._base}/pulls/{number}"
        answer = self._sender.send("GET", REPO + "/pulls/{pull_number}", path, accept=(404,), check=seen)
        return self._found(answer, decode.pull, f"pull request {number}")

    def open_pulls(self) -> model.Listing[model.Pull]:
        """List every open pull request."""
        return self._list("/pulls", "/pulls", decode.pulls, {"state": "open", "sort": "created", "direction": "asc"})

    def pull_files(self, number: int) -> model.Listing[model.ChangedFile]:
        """List the files of a pull request."""
        found = self._list("/pulls/{pull_number}/files", f"/pulls/{number}/files", decode.files, bound=FILES_LIMIT)
        if found.complete and len(found.items) >= FILES_LIMIT:
            return model.Listing(found.items, complete=False, why_not=f"GitHub serves at most {FILES_LIMIT} files")
        return found

    def timeline(self, number: int) -> model.Listing[model.Event]:
        """List a pull request's timeline (REST)."""
        return self._list("/issues/{issue_number}/timeline", f"/issues/{number}/timeline", decode.events)

    def pulls_of_commit(self, oid: str) -> model.Listing[model.Pull]:
        """List the pull requests that a commit belongs to; a commit the host does not know is an incomplete listing."""
        path = f"/commits/{names.path_segment(oid)}/pulls"
        return self._list("/commits/{commit_sha}/pulls", path, decode.pulls, unknown=(404, 422))

    # -- contents
    def contents(self, path: str, ref: str, limit: int) -> bytes | model.Missing:
        """Return one file's bytes at a commit, at most ``limit`` bytes."""
        answer = self._get("/contents/{path}", f"/contents/{names.path_of_ref(path)}", {"ref": ref}, accept=(404,))
        found = self._found(answer, decode.contents, f"{path} at {ref}")
        if isinstance(found, model.Missing) or found.kind != "file":
            return model.Missing(what=f"{path} at {ref}")
        if found.size > limit:
            msg = f"{path} at {ref} has {found.size} bytes, above the limit of {limit}"
            raise errors.ReadFailedError(msg)
        data = found.data
        if data is None:
            whole = self._get("/git/blobs/{file_sha}", f"/git/blobs/{names.path_segment(found.blob)}")
            data = decode_or_fail(decode.blob, whole)
        if len(data) > limit:
            msg = f"{path} at {ref} has {len(data)} bytes where {found.size} were told, above the limit of {limit}"
            raise errors.ReadFailedError(msg)
        return data

    def merge_base(self, base: str, head: str) -> str | model.Missing:
        """Return the commit at which ``head`` left ``base``."""
        path = f"/compare/{names.path_of_ref(base)}...{names.path_of_ref(head)}"
        answer = self._get("/compare/{basehead}", path, {"per_page": "1"}, accept=(404,))
        return self._found(answer, decode.merge_base, f"{base}...{head}")

    # -- writes
    def create_pull(self, *, head: str, base: str, title: str, body: str, draft: bool) -> model.Pull:
        """Open a pull request from a branch of this repository."""
        fields = {"head": head, "base": base, "title": title, "body": body, "draft": draft}
        made = unclear_if_undecodable(decode.pull, self._write("POST", "/pulls", "/pulls", fields))
        self._made[made.number] = self._clock.monotonic()
        return made

    def comment(self, number: int, body: str) -> int:
        """Comment on a pull request; return the comment's id."""
        path = f"/issues/{number}/comments"
        answer = self._write("POST", "/issues/{issue_number}/comments", path, {"body": body})
        return unclear_if_undecodable(decode.numbered, answer)

    def close_pull(self, number: int) -> None:
        """Close a pull request."""
        self._write("PATCH", "/pulls/{pull_number}", f"/pulls/{number}", {"state": "closed"}, label="state=closed")

    def reopen_pull(self, number: int) -> None:
        """Reopen a pull request."""
        self._write("PATCH", "/pulls/{pull_number}", f"/pulls/{number}", {"state": "open"}, label="state=open")

    def edit_pull(self, number: int, *, title: str | None = None, body: str | None = None) -> None:
        """Change title or body."""
        fields = {key: value for key, value in (("title", title), ("body", body)) if value is not None}
        if fields:
            self._write("PATCH", "/pulls/{pull_number}", f"/pulls/{number}", fields, label="+".join(fields))

    def add_labels(self, number: int, labels: Sequence[str]) -> tuple[str, ...]:
        """Add labels; return all the labels that the host then reports."""
        path = f"/issues/{number}/labels"
        answer = self._write("POST", "/issues/{issue_number}/labels", path, {"labels": list(labels)})
        return unclear_if_undecodable(decode.labels, answer)

    def remove_label(self, number: int, label: str) -> None:
        """Remove one label; a label that is not there is success."""
        path = f"/issues/{number}/labels/{names.path_segment(label)}"
        try:
            self._write("DELETE", "/issues/{issue_number}/labels/{name}", path, None)
        except errors.RefusedWriteError as refused:
            if refused.status != 404 or "label does not exist" not in refused.reason.lower():
                raise

    def has_label(self, name: str) -> bool:
        """Tell whether the repository has a label of this name."""
        answer = self._get("/labels/{name}", f"/labels/{names.path_segment(name)}", accept=(404,))
        return answer.status != 404

    def create_label(self, name: str, description: str) -> None:
        """Make a label of the repository."""
        self._write("POST", "/labels", "/labels", {"name": name, "color": "5319e7", "description": description})

    def convert_to_draft(self, node_id: str) -> None:
        """Turn a pull request into a draft."""
        self._mutate(graphql.CONVERT_TO_DRAFT, {"id": node_id}, "ConvertToDraft")

    def mark_ready(self, node_id: str) -> None:
        """Mark a draft ready for review."""
        self._mutate(graphql.MARK_READY, {"id": node_id}, "MarkReady")

    def dispatch(self, workflow: str, ref: str, inputs: Mapping[str, str]) -> model.Dispatched:
        """Start a workflow; where the host does not know how to tell the run's id, ask without it (oddity L68)."""
        path = f"/actions/workflows/{names.path_segment(workflow)}/dispatches"
        template = "/actions/workflows/{workflow_id}/dispatches"
        fields = {"ref": ref, "inputs": dict(inputs)}
        try:
            answer = self._write("POST", template, path, {**fields, "return_run_details": True})
        except errors.RefusedWriteError as refused:
            if refused.status != 422 or "return_run_details" not in refused.reason:
                raise
            answer = self._write("POST", template, path, fields)
        return unclear_if_undecodable(decode.dispatched, answer)

    def cancel_run(self, run_id: int, *, force: bool = False) -> Literal["accepted", "already-finished"]:
        """Ask for a run's cancellation; a 409 is looked into by reading the run."""
        verb = "force-cancel" if force else "cancel"
        try:
            self._write("POST", f"/actions/runs/{{run_id}}/{verb}", f"/actions/runs/{run_id}/{verb}", None)
        except errors.RefusedWriteError as refused:
            if refused.status != 409:
                raise
            run = self.run(run_id)
            if isinstance(run, model.Run) and run.status == "completed":
                return "already-finished"
            raise
        return "accepted"

    # -- GraphQL
    def query(
        self, text: str, variables: Mapping[str, object], *, root: str, tries: int | None = None
    ) -> decode_graphql.Answer:
        """Send a GraphQL read; errors of its parts are in the answer. ``tries`` replaces the policy's."""
        answer = self._sender.send(
            "POST",
            GRAPHQL,
            self._sender.graphql_url,
            body={"query": text, "variables": dict(variables)},
            tries=tries,
            check=lambda answer: _check_limit(answer, errors.ReadFailedError),
        )
        found = decode_or_fail(lambda body: decode_graphql.answer(body, root), answer)
        if not found.parts and found.kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
            raise errors.ForbiddenError(f"a GraphQL query: the token lacks a right ({'; '.join(found.whole)})")
        return found

    def mutate(self, text: str, variables: Mapping[str, object], label: str) -> decode_graphql.Answer:
        """Send a GraphQL write; any error in a clear answer is a refusal, GitHub's "something went wrong" is unclear."""
        answer = self._sender.send(
            "POST",
            GRAPHQL,
            self._sender.graphql_url,
            body={"query": text, "variables": dict(variables)},
            write=True,
            label=label,
            check=lambda answer: _check_limit(answer, errors.RetryLaterError),
        )
        found = unclear_if_undecodable(lambda body: decode_graphql.answer(body, ""), answer)
        told = "; ".join([*found.whole, *(unread.why for unread in found.failed.values())])
        if not told:
            return found
        if found.kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
            raise errors.ForbiddenError(f"GraphQL {label}: the token lacks a right ({told})")
        if "something went wrong" in told.lower():
            raise errors.UnclearWriteError(f"GraphQL {label}: no clear answer ({told})")
        raise errors.RefusedWriteError(f"GraphQL {label}: refused ({told})", status=200, reason=told)

    def _mutate(self, text: str, variables: Mapping[str, object], label: str) -> None:
        self.mutate(text, variables, label)

    # -- for the ref store that has no git protocol
    def ask(self, template: str, path: str, accept: tuple[int, ...] = ()) -> sender.Answer:
        """Send one read below the repository; ``accept``: statuses that are an answer too."""
        return self._get(template, path, accept=accept)

    def tell(self, template: str, path: str, fields: object) -> sender.Answer:
        """Send one POST below the repository."""
        return self._write("POST", template, path, fields)

    def take_away(self, template: str, path: str) -> None:
        """Send one DELETE below the repository; what is not there is success."""
        self._sender.send("DELETE", REPO + template, self._base + path, write=True, accept=(404,))

    def listing(self, template: str, path: str, decoder: paging.Decoder[paging.T]) -> model.Listing[paging.T]:
        """Read one listing below the repository."""
        return self._list(template, path, decoder)

    # -- how
    def _get(
        self, template: str, path: str, query: Mapping[str, str] | None = None, accept: tuple[int, ...] = ()
    ) -> sender.Answer:
        return self._sender.send("GET", REPO + template, self._base + path, query=query, accept=accept)

    def _write(self, method: str, template: str, path: str, fields: object, *, label: str = "") -> sender.Answer:
        return self._sender.send(method, REPO + template, self._base + path, body=fields, write=True, label=label)

    def _list(
        self,
        template: str,
        path: str,
        decoder: paging.Decoder[paging.T],
        query: Mapping[str, str] | None = None,
        *,
        bound: int = paging.ROWS_LIMIT,
        unknown: tuple[int, ...] = (),
    ) -> model.Listing[paging.T]:
        return self._paging.rows(REPO + template, self._base + path, decoder, query, bound=bound, unknown=unknown)

    @staticmethod
    def _found(answer: sender.Answer, decoder: paging.One[paging.T], what: str) -> paging.T | model.Missing:
        return model.Missing(what=what) if answer.status == 404 else decode_or_fail(decoder, answer)


def _check_limit(answer: sender.Answer, error: type[errors.RetryLaterError]) -> None:
    """Ask for another try where a 200 says that the GraphQL rate limit is spent: nothing was done then."""
    if '"RATE_LIMIT' not in answer.body[:LIMIT_WORD_WITHIN]:
        return
    try:
        found = decode_graphql.answer(answer.body, "")
    except decode.UndecodableError:
        return  # whoever reads the answer says so
    if all(part == b"null" for part in found.parts.values()) and found.kinds & {"RATE_LIMITED", "RATE_LIMIT"}:
        raise retry.Again(error("GraphQL: the rate limit is spent"), wait="secondary")


def decode_or_fail(decoder: paging.One[paging.T], answer: sender.Answer) -> paging.T:
    """Return the decoded body of a read; ReadFailedError where it cannot be decoded."""
    return paging.decode_or_fail(decoder, answer)


def unclear_if_undecodable(decoder: paging.One[paging.T], answer: sender.Answer) -> paging.T:
    """Return the decoded body of a write; UnclearWriteError where it cannot be decoded: something did happen."""
    try:
        return decoder(answer.body)
    except (decode.UndecodableError, msgspec.MsgspecError) as error:
        raise errors.UnclearWriteError(
            f"a write was answered (HTTP {answer.status}) but not as documented: {error}"
        ) from error
