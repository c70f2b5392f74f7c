"""The typed tools: the agent asks, klaud does.

Every call goes the same way: read the arguments, check the guards (``decide``), write the intent to the ledger, act, read
back, record, and answer in bounded text. A refusal is an answer with its reason. After a REST effect the claim is read once
more: if it was lost in between, the late effect is undone and the session ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Literal

from klaud import errors, names
from klaud.github import model as hub
from klaud.leases import model as leases
from klaud.leases import rules_touch as touches
from klaud.session import decide, decide_stop, journal, mcp, model, render, rules_ledger
from klaud.session import ledger as ledgers

if TYPE_CHECKING:
    from collections.abc import Callable

    from klaud import clock as clocks
    from klaud.baselines import model as baselines
    from klaud.github import gateway as ports
    from klaud.session import rules_touch
    from klaud.session import work as works

POINTS_A_PAGE = 25
"""Points of the baseline in one answer."""
PAUSE_SECONDS = 0.5
"""A wait is cut into steps of this: the turn's end must be noticed soon."""
TRIED = 50
"""Entries of what was tried that a parked session keeps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What the session works on: the benchmark's workflows, its edit scope, and the frozen baseline's points."""

    workflows: model.Workflows
    scope: model.EditScope
    points: tuple[baselines.Point, ...] = ()
    capacity: Callable[[], Literal["free", "full", "unknown", "not-asked"]] | None = None
    who: rules_touch.Who | None = None
    """Who counts as a person; None: nobody can approve."""


@dataclasses.dataclass(slots=True)
class Waiting:
    """On what the session will park: run ids, and why."""

    on: tuple[int, ...]
    why: leases.ParkedWhy


class Desk:
    """Carries out one session's tool calls, one at a time."""

    def __init__(
        self,
        *,
        gateway: ports.Gateway,
        book: ledgers.Book,
        work: works.Work,
        brief: model.Brief,
        policy: model.Policy,
        target: Target,
        clock: clocks.Clock,
        branch_ref: str,
        agent: str,
        paused: Callable[[], bool],
        log: Callable[[str], None],
        journal: journal.Journal = journal.SILENT,
    ) -> None:
        """``branch_ref``: the full name of the session's branch; ``agent``: who is named in the commits' trailer."""
        self._gateway = gateway
        self._book = book
        self._work = work
        self._brief = brief
        self._policy = policy
        self._target = target
        self._clock = clock
        self._ref = branch_ref
        self._branch = branch_ref.removeprefix("refs/heads/")
        self._agent = agent
        self._paused = paused
        self._log = log
        self._journal = journal
        self._files: tuple[str, ...] = ()
        self._tried = list(book.view.tried)
        self.waiting: Waiting | None = None
        self.open_runs: dict[int, Literal["final-run", "smoke-run"]] = {}
        self.claimed: model.Finish | None = None
        self.ended: model.RefusalCode | Literal[""] = ""
        self.stopping = False
        """Set from outside: waits end soon, with an answer."""

    @property
    def tried(self) -> tuple[leases.Attempted, ...]:
        """What was tried so far, the newest entries."""
        return tuple(self._tried[-TRIED:])

    @property
    def approval_label(self) -> str:
        """The label by which a person approves files that run; empty: nobody can."""
        return self._target.workflows.approval_label

    @property
    def final_started(self) -> bool:
        """Tell whether a final run was started and nobody has seen its end."""
        return "final-run" in self.open_runs.values() or (self.waiting is not None and self.waiting.why == "final-run")

    # -- the door

    def call(self, name: str, arguments: dict[str, Any]) -> model.ToolAnswer:
        """Carry out one request; every failure is an answer."""
        began = time.monotonic()
        request = mcp.read(name, arguments)
        if isinstance(request, str):
            return self._answer(model.Refusal(code="bad-arguments", text=request))
        kind = request.__struct_config__.tag
        self._journal.mark("tool", f"{kind} began")
        try:
            answer = self._carry_out(request)
        except errors.OwnershipLostError:
            answer = _no(
                "claim-lost", "another run has this candidate now. Stop: nothing more will be written.", ends=True
            )
        except errors.UnclearWriteError:
            answer = _no(
                "unclear", "the host gave no clear answer. What happened is found out later. End your turn.", ends=True
            )
        except errors.ForbiddenError:
            answer = _no("not-permitted", "klaud's own token lacks the right to do that. End your turn.", ends=True)
        except errors.RetryLaterError:
            answer = _no("unclear", "the host cannot be asked just now. Try again in a minute.")
        except errors.RefusedWriteError as error:
            answer = _no("rejected", f"the host refused it: {render.plain(error.reason or str(error), 300)}")
        done = self._answer(answer)
        self._journal.mark("tool", f"{kind} {done.refused or 'done'}")
        self._log(f"tool {name}: {done.refused or 'done'} in {time.monotonic() - began:.1f} s")
        return done

    def stop(self) -> None:
        """Let a call that only waits end soon."""
        self.stopping = True

    def must_go_on(self) -> str:
        """Return what is missing before the agent may stop; empty when it may (the Stop rule)."""
        if self.waiting is not None or self.ended or self.claimed is not None or self.stopping:
            return ""
        return "" if self.final_started else decide_stop.missing(self._book.view)

    def _answer(self, answer: str | model.Refusal) -> model.ToolAnswer:
        if isinstance(answer, model.Refusal):
            if answer.ends:
                self.ended = answer.code
            return model.ToolAnswer(text=self._cut(f"{answer.code}: {answer.text}"), refused=answer.code)
        return model.ToolAnswer(text=self._cut(answer))

    def _cut(self, text: str) -> str:
        limit = self._policy.answer_characters
        return text if len(text) <= limit else text[: limit - 20] + "\n(cut here)"

    # -- guards

    def _guards(self, tool: model.ToolName) -> model.Guards:
        view = self._book.view
        handoff: bool | None = False
        claim = self._book.claim_ours()
        if claim and view.number is not None:
            try:
                pull = self._gateway.pull(view.number)
                handoff = isinstance(pull, hub.Pull) and names.HANDOFF_LABEL in pull.labels
            except errors.RetryLaterError:
                handoff = None
        capacity: Literal["free", "full", "unknown", "not-asked"] = "not-asked"
        if tool in decide.SPENDS and self._target.capacity is not None:
            capacity = self._target.capacity()
        return model.Guards(
            claim_ours=claim, handoff=handoff, paused=self._paused(), spent=view.spent, capacity=capacity
        )

    def _carry_out(self, request: model.ToolRequest) -> str | model.Refusal:  # noqa: PLR0911 - one case a tool
        name: model.ToolName = request.__struct_config__.tag  # type: ignore[assignment]
        if self.waiting is not None and name in decide.WRITES:
            return _no("parked", "this session is parked: it goes on when its runs are done. End your turn.")
        retry = request.retry if isinstance(request, model.DispatchSmoke | model.StartFinalRun) else "none"
        guard = decide.may_proceed(name, self._guards(name), self._policy.budgets, retry=retry)
        if isinstance(guard, model.Refusal):
            return guard
        match request:
            case model.PushWork():
                return self._push_work()
            case model.OpenDraft():
                return self._open_draft(request)
            case model.DispatchSmoke():
                return self._dispatch_smoke(request)
            case model.StartFinalRun():
                return self._start_final_run(request)
            case model.WaitForRun():
                return self._wait_for_run(request.run_id)
            case model.ReadRun():
                return self._read_run(request.run_id)
            case model.ReportAttempt():
                self._tried.append(leases.Attempted(what=request.what, run_id=request.run_id, result=request.result))
                return "noted"
            case model.ReadBaseline():
                return self._read_baseline(request.page)
            case model.CheckCapacity():
                room = self._target.capacity() if self._target.capacity is not None else "not-asked"
                return f"capacity={room}"
            case model.Finish():
                self.claimed = request
                return "noted: end your turn. The outcome is computed from what is on record, not from this claim."

    # -- work

    def _push_work(self) -> str | model.Refusal:
        view = self._book.view
        collected = self._work.collect(
            self._target.scope, self._brief.family, candidate=self._brief.candidate, agent=self._agent
        )
        if isinstance(collected, model.Refusal):
            return collected
        intent = self._book.intend("push-work", oids=collected.oids, ref=self._ref, executable=collected.executable)
        try:
            self._book.push(intent, self._ref, view.head or None, collected.head)
        except ledgers.RejectedError as error:
            if error.moved:
                self._book.effected(intent, "refused", code="moved")
                return _no(
                    "draft-touched",
                    "somebody else has pushed to the branch: it is theirs now. End your turn.",
                    ends=True,
                )
            code: model.RefusalCode = "workflow-rights" if "workflow" in error.reason.lower() else "rejected"
            self._book.effected(intent, "refused", code=code)
            return _no(
                code, f"the host refused the push: {render.plain(error.reason, 300)}", ends=code == "workflow-rights"
            )
        self._work.pushed()
        self._files = collected.files
        files = ", ".join(collected.files)
        return f"pushed {len(collected.oids)} commit(s); the branch is at {collected.head}. Files: {files}"

    def _open_draft(self, asked: model.OpenDraft) -> str | model.Refusal:
        view = self._book.view
        if not view.head:
            return _no("no-branch", "nothing is pushed yet: push your work first.")
        if view.number is not None:
            return _no("draft-exists", f"this session's draft is #{view.number} already.")
        found = self._find_draft()
        if found is not None:
            return _no("draft-exists", f"a pull request of this branch exists already: #{found.number}.")
        written = render.draft(
            self._brief, asked, limit=self._policy.field_characters, points=len(self._target.points),
            bundle=self._brief.bundle, files=self._files,
            approval=self.approval_label if view.executable else "",
        )  # fmt: skip
        base = self._gateway.repository().default_branch
        intent = self._book.intend("open-draft", digest=written.digest, ref=self._ref)
        try:
            pull = self._gateway.create_pull(
                head=self._branch, base=base, title=written.title, body=written.body, draft=True
            )
        except (errors.RefusedWriteError, errors.ForbiddenError):
            self._book.effected(intent, "refused")
            raise
        except errors.UnclearWriteError:
            seen = self._until(self._find_draft)
            self._book.effected(intent, "found" if seen else "unclear", number=seen.number if seen else None)
            if seen is None:
                raise
            pull = seen
        else:
            if self._still_ours():
                self._book.effected(intent, "done", number=pull.number)
            else:
                self._undo("close the draft", lambda: self._gateway.close_pull(pull.number))
                self._book.must_be_ours()
        return f"the draft is #{pull.number}"

    def _find_draft(self) -> hub.Pull | None:
        listing = self._gateway.pulls_of_heads([self._branch])[self._branch]
        mine = [detail.pull for detail in listing.items if detail.pull.open and detail.pull.head_ref == self._branch]
        return mine[0] if mine else None

    # -- runs

    def _dispatch_smoke(self, asked: model.DispatchSmoke) -> str | model.Refusal:
        view = self._book.view
        workflow = self._target.workflows.smoke
        if not workflow:
            return _no("no-workflow", "this benchmark has no smoke run. Go on with start_final_run.")
        if not view.head:
            return _no("no-branch", "nothing is pushed yet: push your work first.")
        approval = self._needs_approval()
        if approval is not None:
            return approval
        marker = f"{names.run_marker(self._brief.wave, self._brief.candidate)} {view.next_seq}"
        known = self._run_ids(workflow, view.head, "workflow_dispatch")
        intent = self._book.intend(
            "dispatch-smoke", ref=self._ref, marker=marker, retry="" if asked.retry == "none" else asked.retry
        )
        run_id: int | None = None
        result: Literal["done", "found", "unclear"] = "done"
        try:
            run_id = self._gateway.dispatch(workflow, self._branch, self._smoke_inputs(marker)).run_id
        except (errors.RefusedWriteError, errors.ForbiddenError):
            self._book.effected(intent, "refused")
            raise
        except errors.UnclearWriteError:
            result = "unclear"
        if run_id is None:
            run_id = self._until(lambda: self._new_run(workflow, view.head, "workflow_dispatch", known))
            result = "unclear" if run_id is None and result == "unclear" else "found"
        if not self._still_ours():
            if run_id is not None:
                self._undo("cancel the smoke run", lambda: self._gateway.cancel_run(run_id))
            self._book.must_be_ours()
        self._book.effected(intent, result if run_id or result == "unclear" else "done", run_id=run_id)
        if run_id is None:
            return _no("unclear", "the run was dispatched but is not visible yet. Do not start another; end your turn.")
        self.open_runs[run_id] = "smoke-run"
        return f"run_id={run_id} was started on {view.head}. Wait for it with wait_for_run."

    def _smoke_inputs(self, marker: str) -> dict[str, str]:
        file, key = names.split_family(self._brief.family)
        values = {"{family}": self._brief.family, "{file}": file, "{key}": key, "{marker}": marker}
        inputs = {}
        for name, text in self._target.workflows.smoke_inputs.items():
            filled = text
            for placeholder, value in values.items():
                filled = filled.replace(placeholder, value)
            inputs[name] = filled
        return inputs

    def _start_final_run(self, asked: model.StartFinalRun) -> str | model.Refusal:
        view = self._book.view
        if view.number is None:
            return _no("no-draft", "there is no draft: open it first.")
        pull = self._gateway.pull(view.number)
        if not isinstance(pull, hub.Pull) or not pull.open:
            return _no("draft-closed", "the draft is not open any more. End your turn.", ends=True)
        if pull.head_oid != view.head:
            return _no("head-mismatch", f"the draft's head is {pull.head_oid}, not what klaud pushed ({view.head}).")
        if not pull.draft:
            return _no("draft-touched", "somebody has made the draft ready for review: it is theirs now.", ends=True)
        approval = self._needs_approval()
        if approval is not None:
            return approval
        workflows = self._target.workflows
        others = [label for label in pull.labels if label in workflows.other_final_labels]
        if others:
            return _no("draft-touched", f"another final-run label is set ({others[0]}). End your turn.", ends=True)
        known = self._run_ids(workflows.final, view.head, "pull_request")
        label = workflows.final_label
        intent = self._book.intend(
            "start-final-run", number=view.number, label=label, retry="" if asked.retry == "none" else asked.retry
        )
        try:
            if label in pull.labels:
                self._gateway.remove_label(view.number, label)
            labels = self._gateway.add_labels(view.number, [label])
        except (errors.RefusedWriteError, errors.ForbiddenError):
            self._book.effected(intent, "refused")
            raise
        except errors.UnclearWriteError:
            again = self._gateway.pull(view.number)
            labels = again.labels if isinstance(again, hub.Pull) else ()
        if label not in labels:
            self._book.effected(intent, "unclear")
            message = f"the label {label} did not appear on #{view.number}"
            raise errors.UnclearWriteError(message)
        run_id = self._until(lambda: self._new_run(workflows.final, view.head, "pull_request", known))
        if not self._still_ours():
            self._undo("take the label off", lambda: self._gateway.remove_label(pull.number, label))
            self._book.must_be_ours()
        self._book.effected(intent, "done", run_id=run_id, number=view.number)
        on = () if run_id is None else (run_id,)
        self.waiting = Waiting(on, "final-run")
        if run_id is not None:
            self.open_runs[run_id] = "final-run"
        shown = "" if run_id is None else f" (run_id={run_id})"
        return f"the final run was started{shown}; the session is parked now. End your turn."

    def _needs_approval(self) -> model.Refusal | None:
        """Return why a person must look first; None where no file that runs is reached, or the head is approved."""
        view, label = self._book.view, self.approval_label
        if not view.executable:
            return None
        what = "the change touches files that run: a person must approve it first"
        if not label or self._target.who is None:
            return _no("needs-approval", f"{what}, and no label for that is configured. End your turn.", ends=True)
        if view.number is None:
            return _no("no-draft", f"{what}, by a label on the draft: open the draft.")
        if not rules_ledger.approval_is_fresh(self._book.ledger.records, label):
            self._take_off(view.number, label)
        detail = self._gateway.pull_details([view.number])[view.number]
        by = touches.approver(detail, label, self._target.who) if isinstance(detail, hub.PullDetail) else None
        note = ""
        if by is not None and isinstance(detail, hub.PullDetail) and detail.pull.head_oid == view.head:
            if self._gateway.may_write(by):
                return None
            note = " (it was set by an account that may not write here, which does not count)"
            self._log(
                f"approval: {label} on #{view.number} was set by account {by.id}, which may not write here: ignored"
            )
        text = f"{what}, by the label {label} on #{view.number}{note}: the session waits. End your turn."
        return _no("needs-approval", text, ends=True)

    def _take_off(self, number: int, label: str) -> None:
        """Take an approval off that was given for another state of the branch; that it is off is written down."""
        pull = self._gateway.pull(number)
        intent = self._book.intend("remove-label", number=number, label=label)
        if isinstance(pull, hub.Pull) and label in pull.labels:
            self._gateway.remove_label(number, label)
            self._book.effected(intent, "done", number=number)
        else:
            self._book.effected(intent, "found", number=number)

    def _run_ids(self, workflow: str, head: str, event: str) -> frozenset[int]:
        """Return the runs that are there before one is started: the one that is not among them afterwards is ours."""
        listing = self._gateway.runs(workflow=workflow, head_sha=head, event=event)
        if not listing.complete:
            message = f"the runs of {workflow} for {head} could not all be listed: {listing.why_not}"
            raise errors.RetryLaterError(message)
        return frozenset(run.id for run in listing.items)

    def _new_run(self, workflow: str, head: str, event: str, known: frozenset[int]) -> int | None:
        listing = self._gateway.runs(workflow=workflow, head_sha=head, event=event)
        fresh = [run.id for run in listing.items if run.id not in known and run.head_branch == self._branch]
        return max(fresh, default=None)

    def _wait_for_run(self, run_id: int) -> str | model.Refusal:
        if run_id not in self._own_runs():
            return _no("not-your-run", "only runs that this session started can be waited for.")
        deadline = self._clock.monotonic() + self._policy.wait_run_seconds
        while True:
            run = self._gateway.run(run_id)
            if isinstance(run, hub.Missing):
                return f"run_id={run_id} status=unknown: the host does not show it"
            if run.status == "completed":
                self.open_runs.pop(run_id, None)
                return f"run_id={run_id} status=completed conclusion={run.conclusion}"
            if self.stopping:
                return _no("parked", "the session is ending. End your turn.")
            left = deadline - self._clock.monotonic()
            if left <= 0:
                self.waiting = Waiting((run_id,), self.open_runs.get(run_id, "smoke-run"))
                return _no("parked", f"run_id={run_id} is still {run.status}: the session parks on it. End your turn.")
            self._pause(min(self._policy.poll_seconds, left))

    def _pause(self, seconds: float) -> None:
        """Sleep in small steps, so that the end of the turn ends the wait."""
        while seconds > 0 and not self.stopping:
            self._clock.sleep(min(PAUSE_SECONDS, seconds))
            seconds -= PAUSE_SECONDS

    def _read_run(self, run_id: int) -> str | model.Refusal:
        if run_id not in self._own_runs():
            return _no("not-your-run", "only runs that this session started can be read.")
        run = self._gateway.run(run_id)
        if isinstance(run, hub.Missing):
            return f"run_id={run_id} status=unknown: the host does not show it"
        lines = [f"run_id={run_id} status={run.status} conclusion={run.conclusion} head={run.head_sha}"]
        listing = self._gateway.jobs(run_id)
        lines += [f"job {render.plain(job.name, 100)}: {job.status} {job.conclusion or ''}" for job in listing.items]
        return "\n".join(lines)

    def _own_runs(self) -> frozenset[int]:
        runs = {r.run_id for r in self._book.ledger.records if isinstance(r, leases.Effected) and r.run_id is not None}
        return frozenset(run for run in runs if run is not None)

    def _read_baseline(self, page: int) -> str:
        points = self._target.points
        part = points[(page - 1) * POINTS_A_PAGE : page * POINTS_A_PAGE]
        pages = -(-len(points) // POINTS_A_PAGE)
        lines = [f"{len(points)} points, page {page} of {pages}"]
        for point in part:
            identity = ", ".join(f"{key}={value}" for key, value in point.identity.items())
            metrics = ", ".join(f"{key}={value}" for key, value in point.metrics.items())
            lines.append(f"{render.plain(identity, 600)}: {render.plain(metrics, 600)}")
        return "\n".join(lines)

    # -- after an act

    def _still_ours(self) -> bool:
        return self._book.claim_ours() is not False

    def _undo(self, what: str, act: Callable[[], object]) -> None:
        """Take a late effect back. Another run owns the session now, so nothing is recorded but in the log."""
        with contextlib.suppress(errors.KlaudError):
            act()
        self._log(f"ownership was lost during an effect: {what}")

    def _until(self, look: Callable[[], Any]) -> Any:
        """Look until something is seen or ``seen_seconds`` are over: one's own write may take a while to show."""
        deadline = self._clock.monotonic() + self._policy.seen_seconds
        while True:
            with contextlib.suppress(errors.ReadFailedError):
                seen = look()
                if seen is not None:
                    return seen
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return None
            self._clock.sleep(min(2.0, self._policy.poll_seconds, left))


def _no(code: model.RefusalCode, text: str, *, ends: bool = False) -> model.Refusal:
    return model.Refusal(code=code, text=text, ends=ends)
