"""One small GitHub in memory: accounts, git objects and refs, pull requests, runs, and a clock that tests move.

``World`` holds the state that ``memory_gateway.MemoryGateway`` and ``memory_refs.MemoryRefStore`` both speak to. It makes
no network call, starts no process and never sleeps, so a test can try thousands of worlds in a second.

Every protocol call passes ``World.call``: it is logged, hooks run before and after it, and a rule may spoil it (see
``Spoil``). A person can act between any two calls: a hook simply calls the methods of the world (``push``, ``label``,
``comment``, ``rerun`` ...). Whoever breaks a GitHub rule in this file breaks the simulation: the shared contracts in
``*_contract.py`` hold it to the embedded server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from klaud.github import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
START = datetime.datetime(2026, 3, 2, 6, 0, tzinfo=datetime.UTC)
"""When every world begins, unless told otherwise."""

EMPTY_TREE = "empty"
"""The tree of a record commit; any other text is some content."""


class Killed(BaseException):
    """The process was killed: nothing of klaud's may catch this."""


class Spoil(enum.Enum):
    """What a rule does to one call."""

    FAIL = "the read fails after all tries (for a write: a clear 500 that took no effect, thus unclear)"
    LOSE = "the write takes effect and its reply is lost"
    STALE = "the read shows the world as it was before the newest change"
    FORBID = "403: the token lacks the right"
    MISSING = "404 for anything by id"
    EMPTY = "a listing without rows that calls itself complete"
    SHORT = "a listing without its last row that says it is incomplete"
    REFUSE = "a clear 422 for a write"
    KILL_BEFORE = "the process dies before the call"
    KILL_AFTER = "the process dies right after the call took effect"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One protocol call: its number from 0, its name (``run``, ``refs.apply`` ...), arguments and kind."""

    k: int
    name: str
    args: tuple[Any, ...]
    write: bool
    client: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class GitObject:
    """A commit. ``tree`` is ``EMPTY_TREE`` for a record; ``tag`` makes it an annotated tag, thus no commit."""

    message: bytes
    parents: tuple[str, ...]
    tree: str
    author: model.Account | None = None
    committer: model.Account | None = None
    tag: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Comment:
    """One comment on a pull request."""

    id: int
    author: model.Account | None
    body: str


@dataclasses.dataclass
class State:
    """Everything GitHub remembers; all values are immutable, so a copy of the dictionaries is a full copy."""

    refs: dict[str, str] = dataclasses.field(default_factory=dict)
    objects: dict[str, GitObject] = dataclasses.field(default_factory=dict)
    pulls: dict[int, model.Pull] = dataclasses.field(default_factory=dict)
    bases: dict[int, str] = dataclasses.field(default_factory=dict)
    timeline: dict[int, tuple[model.Event, ...]] = dataclasses.field(default_factory=dict)
    comments: dict[int, tuple[Comment, ...]] = dataclasses.field(default_factory=dict)
    files: dict[int, tuple[model.ChangedFile, ...]] = dataclasses.field(default_factory=dict)
    runs: dict[int, model.Run] = dataclasses.field(default_factory=dict)
    jobs: dict[int, tuple[model.Job, ...]] = dataclasses.field(default_factory=dict)
    artifacts: dict[int, tuple[model.Artifact, ...]] = dataclasses.field(default_factory=dict)
    contents: dict[tuple[str, str], bytes] = dataclasses.field(default_factory=dict)
    blobs: dict[int, bytes] = dataclasses.field(default_factory=dict)
    workflows: dict[str, model.Workflow] = dataclasses.field(default_factory=dict)

    def copy(self) -> State:
        """Return a copy that later changes do not reach."""
        return State(**{f.name: dict(getattr(self, f.name)) for f in dataclasses.fields(self)})


class MemoryClock:
    """A clock that moves only when told, or by ``step`` seconds a call."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime.datetime:
        """Return the world's time."""
        return self._world.time

    def monotonic(self) -> float:
        """Return the world's seconds since its start."""
        return (self._world.time - self._world.start).total_seconds()

    def sleep(self, seconds: float) -> None:
        """Let the world go on for that long."""
        if seconds > 0:
            self._world.advance(seconds)


class World:
    """The state, the clock, the people, and what spoils calls."""

    def __init__(self, *, repository: str = "acme/bench", start: datetime.datetime = START, step: float = 0.05) -> None:
        """``step``: seconds that pass with each call."""
        self.start = start
        self.time = start
        self.step = step
        self.state = State()
        self.history: list[State] = []
        self.keep_history = False
        self.repository = model.Repository(
            id=1,
            full_name=repository,
            default_branch="main",
            permissions={"admin": False, "push": True, "pull": True},
        )
        self.bot = model.Account(id=90001, login="klaud-bot", type="Bot")
        self.reviewer = model.Account(id=90002, login="review-helper[bot]", type="Bot")
        self.alice = model.Account(id=101, login="alice")
        self.mallory = model.Account(id=666, login="mallory")
        self.accounts = {a.id: a for a in (self.bot, self.reviewer, self.alice, self.mallory)}
        self.calls: list[Call] = []
        self.rules: list[Callable[[Call], Spoil | None]] = []
        self.before: list[Callable[[Call], None]] = []
        self.after: list[Callable[[Call], None]] = []
        self.denied: set[str] = set()
        self.label_workflows: dict[str, str] = {}
        self.writers = {self.bot.id, self.alice.id}
        self.variables: dict[str, str] = {}
        self.on_dispatch: Callable[[str, str, dict[str, str]], int | None] | None = None
        self.dispatch_tells_id = True
        self.cancel_behaviour: dict[int, str] = {}
        self.cancel_delay = 5.0
        self.timers: list[tuple[datetime.datetime, int, Callable[[], None]]] = []
        self._serial = 1000
        self.clock = MemoryClock(self)
        self.main = self.commit("first", author=self.alice)
        self.state.refs["refs/heads/main"] = self.main

    # -- time
    def advance(self, seconds: float) -> None:
        """Move the clock on and run what falls due, in order."""
        end = self.time + datetime.timedelta(seconds=seconds)
        while True:
            due = sorted((t for t in self.timers if t[0] <= end), key=lambda t: t[:2])
            if not due:
                break
            timer = due[0]
            self.timers.remove(timer)
            self.time = max(self.time, timer[0])
            timer[2]()
        self.time = end

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Let ``do`` happen in that many seconds."""
        self.timers.append((self.time + datetime.timedelta(seconds=seconds), self.serial(), do))

    def serial(self) -> int:
        """Return a number that was not used before (ids of runs, comments, pull requests)."""
        self._serial += 1
        return self._serial

    # -- calls
    @contextlib.contextmanager
    def call(
        self, name: str, args: tuple[Any, ...], *, write: bool, client: str = ""
    ) -> Iterator[tuple[State, Spoil | None]]:
        """Bracket one protocol call: yield the state to read and what spoils it. The caller raises for the spoil."""
        call = Call(len(self.calls), name, args, write, client)
        self.calls.append(call)
        for hook in self.before:
            hook(call)
        self.advance(self.step)
        spoil = next((s for s in (rule(call) for rule in self.rules) if s is not None), None)
        if spoil is Spoil.KILL_BEFORE:
            raise Killed(name)
        state = self.history[-1] if spoil is Spoil.STALE and self.history else self.state
        if write:
            self.changing()
        try:
            yield state, spoil
        finally:
            for hook in self.after:
                hook(call)
        if spoil is Spoil.KILL_AFTER:
            raise Killed(name)

    def changing(self) -> None:
        """Keep the state as it is, for stale reads, before it changes."""
        if self.keep_history:
            self.history = [*self.history[-1:], self.state.copy()]

    def spoil_nth(self, k: int, spoil: Spoil) -> None:
        """Spoil the k-th call from the world's beginning."""
        self.rules.append(lambda call: spoil if call.k == k else None)

    def act_before(self, k: int, act: Callable[[], object]) -> None:
        """Let somebody act right before the k-th call."""

        def hook(call: Call) -> None:
            if call.k == k:
                act()

        self.before.append(hook)

    # -- git
    def add_object(self, thing: GitObject) -> str:
        """Store an object; return its id."""
        oid = object_id(thing)
        self.state.objects[oid] = thing
        return oid

    def commit(
        self,
        text: str,
        *,
        parent: str | None = None,
        author: model.Account | None = None,
        committer: model.Account | None = None,
    ) -> str:
        """Make a commit with some content; the committer is the author unless named."""
        parents = (parent,) if parent else ()
        return self.add_object(GitObject(text.encode(), parents, f"tree {text}", author, committer or author))

    def ancestors(self, oid: str, state: State | None = None) -> list[str]:
        """Return ``oid`` and its first-parent ancestors, newest first."""
        objects = (state or self.state).objects
        chain = []
        at: str | None = oid
        while at is not None and at in objects:
            chain.append(at)
            at = objects[at].parents[0] if objects[at].parents else None
        return chain

    def commits_of(self, number: int, state: State | None = None) -> list[str]:
        """Return the commits of a pull request, oldest first."""
        state = state or self.state
        base = set(self.ancestors(state.bases[number], state))
        return [oid for oid in reversed(self.ancestors(state.pulls[number].head_oid, state)) if oid not in base]

    def move_ref(self, ref: str, oid: str | None, *, by: model.Account | None) -> None:
        """Set or delete a ref, with what GitHub does to the open pull requests of that branch."""
        old = self.state.refs.get(ref)
        if oid is None:
            self.state.refs.pop(ref, None)
        else:
            self.state.refs[ref] = oid
        if not ref.startswith("refs/heads/"):
            return
        name = ref.removeprefix("refs/heads/")
        for pull in list(self.state.pulls.values()):
            if pull.head_ref != name or pull.head_repository != self.repository.full_name:
                continue
            if oid is None:
                self.event(pull.number, "head_ref_deleted", by)
                if pull.open:
                    self.set_pull(pull.number, state="closed", closed_at=self.time)
                    self.event(pull.number, "closed", by)
            elif pull.open and oid != old:
                forced = old is not None and old not in self.ancestors(oid)
                self.set_pull(pull.number, head_oid=oid)
                self.set_pull(pull.number, commit_count=len(self.commits_of(pull.number)))
                if forced:
                    self.event(pull.number, "head_ref_force_pushed", by)
                self.event(pull.number, "committed", None, oid)

    def push(self, branch: str, text: str, *, by: model.Account, committer: model.Account | None = None) -> str:
        """Let somebody push one more commit to a branch (made from main where it does not exist); return its oid."""
        self.changing()
        ref = f"refs/heads/{branch}"
        oid = self.commit(text, parent=self.state.refs.get(ref, self.main), author=by, committer=committer)
        self.move_ref(ref, oid, by=by)
        return oid

    # -- pull requests
    def open_pull(
        self,
        branch: str,
        *,
        by: model.Account | None,
        draft: bool = True,
        title: str = "Try it",
        body: str = "",
        labels: Sequence[str] = (),
        head_repository: str | None = "",
        head_oid: str | None = None,
    ) -> int:
        """Open a pull request; ``head_repository`` empty means this repository."""
        self.changing()
        number = self.serial()
        head = head_oid or self.state.refs[f"refs/heads/{branch}"]
        self.state.bases[number] = self.state.refs["refs/heads/main"]
        self.state.timeline[number] = ()
        self.state.comments[number] = ()
        self.state.files.setdefault(number, ())
        self.state.pulls[number] = model.Pull(
            number=number,
            node_id=f"PR_{number}",
            state="open",
            merged=False,
            draft=draft,
            title=title,
            body=body,
            author=by,
            head_ref=branch,
            head_oid=head,
            head_repository=self.repository.full_name if head_repository == "" else head_repository,
            base_ref="main",
            labels=(),
            created_at=self.time,
            updated_at=self.time,
            mergeable="MERGEABLE",
        )
        for oid in self.commits_of(number):
            self.event(number, "committed", None, oid)
        self.set_pull(number, commit_count=len(self.commits_of(number)))
        for label in labels:
            self.label(number, label, by=by)
        return number

    def set_pull(self, number: int, **changes: Any) -> None:
        """Change fields of a pull request; its update time moves."""
        changes.setdefault("updated_at", self.time)
        self.state.pulls[number] = msgspec.structs.replace(self.state.pulls[number], **changes)

    def event(self, number: int, kind: str, by: model.Account | None, detail: str = "") -> None:
        """Add one entry to a pull request's timeline; its update time moves."""
        entry = model.Event(kind=kind, actor=by, at=self.time, detail=detail, id=str(self.serial()))
        self.state.timeline[number] = (*self.state.timeline[number], entry)
        self.set_pull(number)

    def label(self, number: int, label: str, *, by: model.Account | None) -> None:
        """Add a label; a workflow of ``label_workflows`` starts on it."""
        self.changing()
        pull = self.state.pulls[number]
        if label in pull.labels:
            return
        self.set_pull(number, labels=(*pull.labels, label))
        self.event(number, "labeled", by, label)
        if label in self.label_workflows and self.state.pulls[number].mergeable != "CONFLICTING":
            self.add_run(
                self.label_workflows[label], actor=by, event="pull_request", head=pull.head_oid, branch=pull.head_ref
            )

    def unlabel(self, number: int, label: str, *, by: model.Account | None) -> None:
        """Remove a label."""
        self.changing()
        pull = self.state.pulls[number]
        if label in pull.labels:
            self.set_pull(number, labels=tuple(x for x in pull.labels if x != label))
            self.event(number, "unlabeled", by, label)

    def comment(self, number: int, body: str, *, by: model.Account | None) -> int:
        """Comment on a pull request; return the comment's id."""
        self.changing()
        comment = Comment(self.serial(), by, body)
        self.state.comments[number] = (*self.state.comments[number], comment)
        self.event(number, "commented", by)
        return comment.id

    def close(self, number: int, *, by: model.Account | None) -> None:
        """Close a pull request."""
        self.changing()
        if self.state.pulls[number].open:
            self.set_pull(number, state="closed", closed_at=self.time)
            self.event(number, "closed", by)

    def reopen(self, number: int, *, by: model.Account | None) -> bool:
        """Reopen a pull request; False where GitHub refuses: its branch is gone or moved, or it was merged."""
        self.changing()
        pull = self.state.pulls[number]
        if pull.open:
            return True
        if pull.merged or self.state.refs.get(f"refs/heads/{pull.head_ref}") != pull.head_oid:
            return False
        self.set_pull(number, state="open", closed_at=None)
        self.event(number, "reopened", by)
        return True

    def merge(self, number: int, *, by: model.Account | None) -> None:
        """Merge a pull request (main does not move: no rule reads it)."""
        self.changing()
        self.set_pull(number, state="closed", merged=True, closed_at=self.time, merged_at=self.time)
        self.event(number, "merged", by)
        self.event(number, "closed", by)

    def rename(self, number: int, title: str, *, by: model.Account | None) -> None:
        """Change the title."""
        self.changing()
        self.set_pull(number, title=title, body_edited_at=self.time, editor=by)
        self.event(number, "renamed", by)

    def edit_body(self, number: int, body: str, *, by: model.Account | None) -> None:
        """Change the body: in no timeline."""
        self.changing()
        self.set_pull(number, body=body, body_edited_at=self.time, editor=by)

    def ready(self, number: int, *, by: model.Account | None) -> None:
        """Mark a draft as ready for review."""
        self.changing()
        if self.state.pulls[number].draft:
            self.set_pull(number, draft=False)
            self.event(number, "ready_for_review", by)

    def to_draft(self, number: int, *, by: model.Account | None) -> None:
        """Make a draft of it."""
        self.changing()
        if not self.state.pulls[number].draft:
            self.set_pull(number, draft=True)
            self.event(number, "convert_to_draft", by)

    # -- runs
    def add_run(
        self,
        workflow: str,
        *,
        actor: model.Account | None,
        run_id: int | None = None,
        attempt: int = 1,
        status: str = "queued",
        conclusion: str | None = None,
        event: str = "workflow_dispatch",
        head: str | None = None,
        branch: str | None = "main",
        title: str = "",
        jobs: Sequence[tuple[str, str, str | None]] | None = None,
        created_at: datetime.datetime | None = None,
        triggering: model.Account | None = None,
    ) -> int:
        """Add a run with one job (or those given as name, status, conclusion); return its id."""
        self.changing()
        run_id = run_id or self.serial()
        self.state.runs[run_id] = model.Run(
            id=run_id,
            attempt=attempt,
            status=status,
            conclusion=conclusion,
            event=event,
            head_branch=branch,
            head_sha=head or self.main,
            path=f".github/workflows/{workflow}",
            display_title=title,
            actor=actor,
            triggering_actor=triggering or actor,
            created_at=created_at or self.time,
            updated_at=self.time,
        )
        wanted = [("main", status, conclusion)] if jobs is None else jobs
        self.state.jobs[run_id] = tuple(
            model.Job(id=self.serial(), run_id=run_id, attempt=attempt, name=name, status=s, conclusion=c)
            for name, s, c in wanted
        )
        return run_id

    def job(self, run_id: int, name: str, status: str, conclusion: str | None, attempt: int = 1) -> model.Job:
        """Return one more job of a run, not yet stored."""
        over = self.time if status == "completed" else None
        return model.Job(
            id=self.serial(),
            run_id=run_id,
            attempt=attempt,
            name=name,
            status=status,
            conclusion=conclusion,
            completed_at=over,
        )

    def set_run(self, run_id: int, **changes: Any) -> None:
        """Change fields of a run."""
        changes.setdefault("updated_at", self.time)
        self.state.runs[run_id] = msgspec.structs.replace(self.state.runs[run_id], **changes)

    def finish_run(self, run_id: int, conclusion: str = "success") -> None:
        """Let a run and its jobs complete (a completed one stays as it is)."""
        if self.state.runs[run_id].status == "completed":
            return
        self.changing()
        self.set_run(run_id, status="completed", conclusion=conclusion)
        self.state.jobs[run_id] = tuple(
            job
            if job.status == "completed"
            else msgspec.structs.replace(job, status="completed", conclusion=conclusion)
            for job in self.state.jobs.get(run_id, ())
        )

    def rerun(self, run_id: int, *, by: model.Account | None) -> None:
        """Start another attempt of a run: ``actor`` stays, ``triggering_actor`` is whoever pressed the button."""
        self.changing()
        attempt = self.state.runs[run_id].attempt + 1
        self.set_run(run_id, status="queued", conclusion=None, attempt=attempt, triggering_actor=by)
        self.state.jobs[run_id] = tuple(
            msgspec.structs.replace(job, id=self.serial(), status="queued", conclusion=None, attempt=attempt)
            for job in self.state.jobs.get(run_id, ())
        )

    def cancel(self, run_id: int, *, force: bool) -> str:
        """Ask for a cancellation; answer ``accepted``, ``already-finished`` or ``refused``.

        ``cancel_behaviour[run_id]``: ``normal`` (ends after ``cancel_delay`` seconds), ``ignored`` (202, nothing happens
        without force), ``deaf`` (202 and nothing ever), ``zombie`` (409 to both), ``force-only`` (409 without force).
        """
        if self.state.runs[run_id].status == "completed":
            return "already-finished"
        behaviour = self.cancel_behaviour.get(run_id, "normal")
        if behaviour == "zombie" or (behaviour == "force-only" and not force):
            return "refused"
        if behaviour == "deaf" or (behaviour == "ignored" and not force):
            return "accepted"
        self.later(self.cancel_delay, lambda: self.finish_run(run_id, "cancelled"))
        return "accepted"


def object_id(thing: GitObject) -> str:
    """Return the id of an object: a digest of all it holds."""
    who = [a.id if a else 0 for a in (thing.author, thing.committer)]
    return hashlib.sha1(
        repr((thing.message, thing.parents, thing.tree, who, thing.tag)).encode(), usedforsecurity=False
    ).hexdigest()
