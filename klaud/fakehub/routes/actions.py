"""Workflows, runs, jobs, artifacts."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from klaud.fakehub.call import Page, Problem, Reply, not_found
from klaud.fakehub.clock import parse, stamp
from klaud.fakehub.jobs import output_of
from klaud.fakehub.render import Renderer

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.state import Artifact, Run, Workflow

RUNS_SERVED = 1000
"""Rows of a filtered run search that GitHub serves; ``total_count`` goes on counting."""

CONCLUSIONS = (
    "action_required", "cancelled", "failure", "neutral", "skipped", "stale", "success", "timed_out", "startup_failure",
)  # fmt: skip
"""Words that the ``status`` filter takes for a conclusion."""


def _workflow(call: Call) -> Workflow:
    found = call.hub.actions.find(call.repo, call.params["workflow_id"])
    if found is None:
        raise not_found()
    return found


def workflows(call: Call) -> Any:
    """Answer the repository's workflows."""
    call.hub.actions.register(call.repo)
    found = sorted(call.repo.workflows.values(), key=lambda workflow: workflow.id)
    return Page(found, lambda workflow: Renderer(call).workflow(call.repo, workflow), key="workflows")


def workflow(call: Call) -> Any:
    """Answer one workflow, by id or file name."""
    return Renderer(call).workflow(call.repo, _workflow(call))


def enable(call: Call) -> Any:
    """Enable a workflow."""
    _workflow(call).state = "active"
    return Reply(204)


def disable(call: Call) -> Any:
    """Disable a workflow."""
    _workflow(call).state = "disabled_manually"
    return Reply(204)


def dispatch(call: Call) -> Any:
    """Start a workflow: 204, or with ``return_run_details`` 200 and the run's id."""
    found = _workflow(call)
    fields = call.fields(("ref", "inputs", "return_run_details"))
    if not fields.get("ref"):
        raise Problem(422, 'Invalid request.\n\n"ref" wasn\'t supplied.')
    fault = call.fault("dispatch")
    variant = fault.variant if fault else ""
    if "return_run_details" in fields and variant == "unknown-field":
        raise Problem(422, 'Invalid request.\n\n"return_run_details" is not a permitted key.')
    run = call.hub.actions.dispatch(
        call.repo,
        found,
        ref=str(fields["ref"]),
        inputs=fields.get("inputs") or {},
        actor=call.actor,
        visible_after=fault.seconds if fault else 0,
    )
    if variant != "details" and (not fields.get("return_run_details") or variant == "no-details"):
        return Reply(204)
    url = Renderer(call).url(call.repo, "actions", "runs", run.id)
    html = Renderer(call).html(call.repo, "actions", "runs", run.id)
    return {"workflow_run_id": run.id, "run_url": url, "html_url": html}


COMPARISONS: tuple[tuple[str, Callable[[str, str], bool]], ...] = (
    (">=", operator.le),
    ("<=", operator.ge),
    (">", operator.lt),
    ("<", operator.gt),
)
"""Signs of a ``created`` filter, the longer first, as comparisons of the edge with a time stamp."""


def created_filter(text: str) -> Callable[[str], bool]:
    """Return the test that a ``created`` filter makes of a time stamp: ``A..B``, ``>=A``, ``>A``, ``<=A``, ``<A``, ``A``."""

    def moment(part: str) -> str:
        return stamp(parse(part.replace(" ", "+"))) or ""

    if ".." in text:
        low, _, high = text.partition("..")
        start = "" if low == "*" else moment(low)
        end = "9999" if high == "*" else moment(high) if "T" in high else high + "T23:59:59Z"
        return lambda at: start <= at <= end
    for sign, compare in COMPARISONS:
        if text.startswith(sign):
            rest = text.removeprefix(sign)
            whole_day = "T" not in rest and sign in ("<=", ">")
            return functools.partial(compare, rest + "T23:59:59Z" if whole_day else moment(rest))
    return lambda at: at.startswith(text)


def select_runs(call: Call, found: list[Run]) -> list[Run]:
    """Return the runs that the query's filters take, newest first."""
    query = call.query
    status = query.get("status")
    created = created_filter(query["created"]) if query.get("created") else None
    chosen = []
    for run in found:
        if run.visible_at is not None and run.visible_at > call.now:
            continue
        if status and (run.conclusion if status in CONCLUSIONS else run.status) != status:
            continue
        if query.get("event") and run.event != query["event"]:
            continue
        if query.get("branch") and run.head_branch != query["branch"]:
            continue
        if query.get("head_sha") and run.head_oid != query["head_sha"]:
            continue
        if query.get("actor"):
            account = call.state.account(run.actor)
            if account is None or account.login.lower() != query["actor"].lower():
                continue
        if created is not None and not created(stamp(run.created_at) or ""):
            continue
        chosen.append(run)
    chosen.sort(key=lambda run: (run.created_at, run.id), reverse=True)
    return chosen


FILTERS = ("status", "event", "branch", "head_sha", "actor", "created", "check_suite_id", "exclude_pull_requests")


def _page_of_runs(call: Call, found: list[Run]) -> Page:
    filtered = any(call.query.get(name) for name in FILTERS)
    cap = RUNS_SERVED if filtered else None
    return Page(select_runs(call, found), lambda run: Renderer(call).run(call.repo, run), key="workflow_runs", cap=cap)


def runs(call: Call) -> Any:
    """Answer the repository's runs, newest first."""
    return _page_of_runs(call, list(call.repo.runs.values()))


def runs_of_workflow(call: Call) -> Any:
    """Answer one workflow's runs, newest first."""
    found = _workflow(call)
    return _page_of_runs(call, [run for run in call.repo.runs.values() if run.workflow_id == found.id])


def run(call: Call) -> Any:
    """Answer one run."""
    return Renderer(call).run(call.repo, call.run())


def attempt(call: Call) -> Any:
    """Answer one attempt of a run."""
    found = call.run()
    for one in found.attempts:
        if str(one.number) == call.params["attempt_number"]:
            return Renderer(call).run(call.repo, found, one)
    raise not_found()


def jobs(call: Call) -> Any:
    """Answer the jobs of a run's newest attempt (``filter=all``: of every attempt)."""
    found = call.run()
    attempts = found.attempts if call.query.get("filter") == "all" else [found.last]
    rows = [job for one in attempts for job in one.jobs]
    return Page(rows, lambda job: Renderer(call).job(call.repo, found, job), key="jobs")


def jobs_of_attempt(call: Call) -> Any:
    """Answer the jobs of one attempt."""
    found = call.run()
    for one in found.attempts:
        if str(one.number) == call.params["attempt_number"]:
            return Page(one.jobs, lambda job: Renderer(call).job(call.repo, found, job), key="jobs")
    raise not_found()


def job(call: Call) -> Any:
    """Answer one job."""
    for found in call.repo.runs.values():
        for one in found.attempts:
            for made in one.jobs:
                if str(made.id) == call.params["job_id"]:
                    return Renderer(call).job(call.repo, found, made)
    raise not_found()


def job_log(call: Call) -> Any:
    """Send the caller to where a job's output is."""
    job(call)
    return Reply(302, None, {"Location": f"{call.base_url}/_logs/{call.params['job_id']}"})


def log_text(call: Call) -> Any:
    """Serve what a job's command printed."""
    for repository in call.state.repositories.values():
        for found in repository.runs.values():
            for made in (job for one in found.attempts for job in one.jobs):
                if str(made.id) == call.params["job_id"]:
                    text = output_of(call.hub.actions.runner.directory(found, made))
                    return Reply(200, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})
    raise not_found()


def _cancel(call: Call, *, force: bool) -> Any:
    fault = call.fault("cancel")
    found = call.run()
    if fault is not None and fault.variant == "refuse":
        raise Problem(409, "Cannot cancel a workflow run that is completed.")
    if fault is None or found.status == "completed":
        call.hub.actions.cancel(call.repo, found, force=force)
    return Reply(202, {})


def cancel(call: Call) -> Any:
    """Cancel a run: 202 promises nothing."""
    return _cancel(call, force=False)


def force_cancel(call: Call) -> Any:
    """Cancel a run without its clean-up jobs."""
    return _cancel(call, force=True)


def rerun(call: Call) -> Any:
    """Start a new attempt of a run."""
    call.hub.actions.rerun(call.repo, call.run(), actor=call.actor)
    return Reply(201, {})


def delete_run(call: Call) -> Any:
    """Delete a run that is over."""
    found = call.run()
    if found.status != "completed":
        raise Problem(403, "Workflow run is not completed")
    del call.repo.runs[found.id]
    return Reply(204)


def _artifact(call: Call) -> tuple[Run, Artifact]:
    for found in call.repo.runs.values():
        for made in found.artifacts:
            if str(made.id) == call.params["artifact_id"]:
                return found, made
    raise not_found()


def artifacts_of_run(call: Call) -> Any:
    """Answer a run's artifacts."""
    found = call.run()
    name = call.query.get("name")
    rows = [made for made in found.artifacts if not name or made.name == name]
    return Page(rows, lambda made: Renderer(call).artifact(call.repo, found, made), key="artifacts")


def artifacts(call: Call) -> Any:
    """Answer the repository's artifacts, newest first."""
    name = call.query.get("name")
    rows = [
        (found, made) for found in call.repo.runs.values() for made in found.artifacts if not name or made.name == name
    ]
    rows.sort(key=lambda row: row[1].id, reverse=True)
    return Page(rows, lambda row: Renderer(call).artifact(call.repo, *row), key="artifacts")


def artifact(call: Call) -> Any:
    """Answer one artifact."""
    return Renderer(call).artifact(call.repo, *_artifact(call))


def artifact_zip(call: Call) -> Any:
    """Send the caller to where the zip is: 302, or 410 once it expired."""
    _, made = _artifact(call)
    if call.params["archive_format"] != "zip":
        raise not_found()
    if made.expired or made.expires_at <= call.now:
        raise Problem(410, "Artifact has expired")
    store = call.base_url.replace("//127.0.0.1", "//localhost")  # another host, so that clients drop their token
    return Reply(302, None, {"Location": f"{store}/_blobs/{made.id}?sig={made.digest[7:23]}"})


def delete_artifact(call: Call) -> Any:
    """Delete an artifact."""
    found, made = _artifact(call)
    found.artifacts.remove(made)
    return Reply(204)


def blob(call: Call) -> Any:
    """Serve a zip, without a token, to whoever has the signed address; a token sent along is refused, as the store does."""
    if "authorization" in call.headers:
        raise Problem(400, "Authentication information is not given in the correct format.")
    for repository in call.state.repositories.values():
        for found in repository.runs.values():
            for made in found.artifacts:
                if str(made.id) == call.params["artifact_id"] and call.query.get("sig") == made.digest[7:23]:
                    return Reply(200, made.path.read_bytes(), {"Content-Type": "application/zip"})
    raise not_found()


def add_routes(router: Router) -> None:
    """Add these routes to the table."""
    base = "/repos/{owner}/{repo}/actions"

    def add(method: str, path: str, handler: Any) -> None:
        router.route(method, f"{base}/{path}", permission="actions")(handler)

    add("GET", "workflows", workflows)
    add("GET", "workflows/{workflow_id}", workflow)
    add("PUT", "workflows/{workflow_id}/enable", enable)
    add("PUT", "workflows/{workflow_id}/disable", disable)
    add("POST", "workflows/{workflow_id}/dispatches", dispatch)
    add("GET", "workflows/{workflow_id}/runs", runs_of_workflow)
    add("GET", "runs", runs)
    add("GET", "runs/{run_id}", run)
    add("DELETE", "runs/{run_id}", delete_run)
    add("GET", "runs/{run_id}/attempts/{attempt_number}", attempt)
    add("GET", "runs/{run_id}/attempts/{attempt_number}/jobs", jobs_of_attempt)
    add("GET", "runs/{run_id}/jobs", jobs)
    add("GET", "runs/{run_id}/artifacts", artifacts_of_run)
    add("POST", "runs/{run_id}/cancel", cancel)
    add("POST", "runs/{run_id}/force-cancel", force_cancel)
    add("POST", "runs/{run_id}/rerun", rerun)
    add("POST", "runs/{run_id}/rerun-failed-jobs", rerun)
    add("GET", "jobs/{job_id}", job)
    add("GET", "jobs/{job_id}/logs", job_log)
    add("GET", "artifacts", artifacts)
    add("GET", "artifacts/{artifact_id}", artifact)
    add("DELETE", "artifacts/{artifact_id}", delete_artifact)
    add("GET", "artifacts/{artifact_id}/{archive_format}", artifact_zip)
    router.route("GET", "/_blobs/{artifact_id}")(blob)
    router.route("GET", "/_logs/{job_id}")(log_text)
