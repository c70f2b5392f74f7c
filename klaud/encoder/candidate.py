"""A candidate of kind ``encode``: a session whose turn is one build, and whose work is the reference.

Claim, heartbeat, ledger, journal, parking and settlement are the session's (``klaud.session.run``); what this adds is where
it works and what a turn is. Inputs, and what the branch or the base has of the reference, are taken out of the base commit
(the branch's head in a continuation); ``run.encode_all`` builds, exactly as ``klaud encode`` does; then klaud itself commits
the tree, and nothing else, and asks the session's own tools to push it, to open the draft, and to start the validation,
which is the final run. The agents of the items have no tree, no git and none of these tools.

A build that is not whole (its budget or the job ended) is pushed as partial and the session parks: the run that continues
it finds it on the branch. Nothing is pushed of a build in which nothing could be encoded: the session fails, and its code
names the check.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import time
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import errors
from klaud.encoder import driven, files, naming, rules_outcome, run, validate
from klaud.session import gitprog, render, work
from klaud.session import model as sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from klaud.clock import Clock
    from klaud.encoder import agents, model, reference, request
    from klaud.session import frameworks

LOOK_SECONDS = 0.5
"""Between two looks at whether the build must end now: a job that is cancelled has eight seconds."""
FILE_BYTES = 33_554_432
"""One file of a reference: hosts refuse files of a hundred megabytes, and people read these."""
MARGIN_SECONDS = 300.0
"""Of the job's time, for validation, push and draft after the build."""


class Workplace(work.Work):
    """klaud's own store with the base and the branch. There is no work tree: klaud commits what was built itself."""

    def prepare(self, base: str, head: str = "") -> None:
        """Fetch the base and the branch's head."""
        self.open_store(base, head)
        self.agent_root.mkdir()
        self._offered: dict[str, bytes] = {}
        self._below: tuple[str, ...] = ()

    def take_out(self, commit: str, path: str, into: Path) -> bool:
        """Write the files below ``path`` of a commit to ``into/<path>``; False where it has none. Links become text."""
        if not self._git.run("ls-tree", commit, "--", path):
            return False
        into.mkdir(parents=True, exist_ok=True)
        index = {"GIT_INDEX_FILE": str(self.folder / "taking.index")}
        settings = ("-c", "core.symlinks=false", "-c", "core.autocrlf=false", f"--work-tree={into}")
        self._git.run(*settings, "checkout", "--quiet", commit, "--", path, env=index)
        return True

    @property
    def base(self) -> str:
        """The commit that the candidate starts from."""
        return self._base

    def offer(self, tree: Mapping[str, bytes], *, below: tuple[str, ...]) -> None:
        """Say what the next push is: exactly these files below the folders ``below``, and nothing changed elsewhere."""
        self._offered, self._below = dict(tree), below

    def collect(
        self, scope: sessions.EditScope, family: str, *, candidate: str, agent: str
    ) -> work.Collected | sessions.Refusal:
        """Commit what was offered on top of the branch; a refusal where that changes nothing."""
        del scope, family  # klaud made the tree: what it is was checked before it was offered
        try:
            return self._commit(candidate, agent)
        except gitprog.GitFailedError as error:
            return sessions.Refusal(code="not-readable", text=f"the reference could not be committed: {error}")

    def _commit(self, candidate: str, agent: str) -> work.Collected | sessions.Refusal:
        git = self._git
        index = {"GIT_INDEX_FILE": str(self.folder / "making.index")}
        git.run("read-tree", self.head, env=index)
        stale = git.run("ls-files", "-z", "--", *self._below, env=index)
        lines = [
            f"0 {'0' * 40}\t{name}\0".encode() for name in stale.decode("utf-8", "surrogateescape").split("\0") if name
        ]
        for name, data in sorted(self._offered.items()):
            oid = git.text("hash-object", "-w", "--stdin", data=data)
            lines.append(f"100644 {oid}\t{name}\0".encode())
        git.run("update-index", "-z", "--index-info", data=b"".join(lines), env=index)
        tree = git.text("write-tree", env=index)
        if tree == git.text("rev-parse", f"{self.head}^{{tree}}"):
            return sessions.Refusal(code="nothing-committed", text="the branch has this reference already")
        message = render.commit_message(f"Encode {self._below[0]}", candidate=candidate, agent=agent)
        made = git.text("commit-tree", tree, "-p", self.head, data=message.encode(), env=self._who())
        changed = git.run("diff-tree", "-r", "-z", "--name-only", self._base, made).decode("utf-8", "surrogateescape")
        self._pending = (made, made)
        return work.Collected(made, (made,), tuple(name for name in changed.split("\0") if name), executable=False)


@dataclasses.dataclass(slots=True)
class Encode:
    """One candidate's work; ``workplace`` and ``turn`` are what ``run.Craft`` takes.

    ``checked``: what the validator made of the brief (one database). ``data`` and ``directory``: folders of the repository.
    ``references``: where the reference is built, kept for an upload. ``job_seconds``: what is left of the job.
    """

    checked: request.Checked
    data: str
    directory: str
    references: Path
    clock: Clock
    job_seconds: float
    outcome: run.Outcome | None = None
    """What the build came to, once it has run."""
    place: Workplace | None = None
    choose: Callable[..., agents.ItemAgent] = driven.choose
    """What makes the agent of the items."""
    handed_in: bool = False
    """Whether the reference was pushed: then it may be uploaded, too."""

    def workplace(self, *arguments: Any, **named: Any) -> Workplace:
        """Make the place that the session works in."""
        self.place = Workplace(*arguments, **named)
        return self.place

    def turn(self, ask: frameworks.Ask) -> sessions.TurnEnd:
        """Build, commit, push, open the draft, start the validation; every refusal ends the turn with its code."""
        began = time.monotonic()
        meter = driven.Meter(ask.spent_tokens, ask.spent_microdollars)
        try:
            status, fault, code = self._turn(ask, meter)
        except (gitprog.GitFailedError, OSError) as error:  # a full disk, an object that cannot be had
            ask.log(f"{type(error).__name__}: {error}"[:300])
            status, fault, code = "failed", "agent-error", "build-failed"
        return sessions.TurnEnd(
            status=status, fault=fault, code=code, entered=True, usage=meter.used, seconds=time.monotonic() - began,
            isolation=ask.sandbox.words,
        )  # fmt: skip

    def _turn(self, ask: frameworks.Ask, meter: driven.Meter) -> tuple[sessions.TurnStatus, sessions.Fault, str]:
        place, (key,) = self.place, self.checked.keys
        if place is None:
            message = "a turn without a workplace"
            raise errors.BugError(message)
        try:
            data = self._inputs(place, key)
            self._standing(place, key)
            agent = self.choose(
                self.checked, ask.environ, isolation=ask.sandbox, policy=ask.policy, log=ask.log, meter=meter
            )
        except errors.ForbiddenError as error:
            ask.log(str(error))
            return "failed", "authentication", ""
        except errors.MissingToolError as error:
            ask.log(str(error))
            return "failed", "missing-program", ""
        made = run.requests(
            self.bounded(), agent, data=data, references=self.references, clock=self.clock,
            environment=ask.environ, note=ask.log,
        )  # fmt: skip
        fault = asyncio.run(self._build(made, ask.watch))
        partial = self.references / naming.names(key).parent / naming.names(key).partial
        if fault in {"job-limit", "paused"}:
            return self._pause(ask, place, key, partial, fault)
        if fault:
            return "interrupted", fault, ""
        outcome = self.outcome
        if outcome is None or outcome.entry is None:
            ask.log(f"no reference: {outcome.error if outcome else 'nothing was built'}")
            over = ask.policy.budgets
            spent = meter.tokens >= over.tokens or meter.cost_microdollars >= over.dollars * 1_000_000
            return "failed", "agent-error", "budget" if spent else "build-failed"
        for line in run.lines(outcome):
            ask.log(line)
        if outcome.entry.state == "partial":
            return self._pause(ask, place, key, partial, "job-limit")
        return self._hand_in(ask, place, key, outcome.entry)

    # -- the build

    def bounded(self) -> request.Checked:
        """Cut the build's budget to what is left of the job."""
        left = max(1.0, self.job_seconds - MARGIN_SECONDS)
        policy = self.checked.policy
        if policy.budget_seconds <= left:
            return self.checked
        return msgspec.structs.replace(self.checked, policy=msgspec.structs.replace(policy, budget_seconds=left))

    def _inputs(self, place: Workplace, key: model.Key) -> Path:
        into = place.folder / "inputs"
        place.take_out(place.base, f"{self.data}/{key.database}", into)
        return into / self.data

    def _standing(self, place: Workplace, key: model.Key) -> None:
        """Put what the branch (or the base) has of this reference where the build looks for it."""
        names = naming.names(key)
        into = place.folder / "standing"
        for name in (names.directory, names.partial):
            target = self.references / names.parent / name
            path = f"{self.directory}/{names.parent}/{name}"
            if not target.exists() and place.take_out(place.head, path, into):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(str(into / path), str(target))  # the two may be on different file systems

    async def _build(self, made: list[reference.Request], watch: Callable[[], sessions.Fault]) -> sessions.Fault:
        """Build, unless the session must end first: then the build is cancelled, which keeps what it has settled."""
        building = asyncio.ensure_future(run.encode_all(made))
        while not building.done():
            await asyncio.wait({building}, timeout=LOOK_SECONDS)
            fault = watch()
            if fault and not building.done():
                building.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await building
                return fault
        (self.outcome,) = building.result()
        return ""

    # -- what comes of it

    def _pause(
        self, ask: frameworks.Ask, place: Workplace, key: model.Key, partial: Path, fault: sessions.Fault
    ) -> tuple[sessions.TurnStatus, sessions.Fault, str]:
        """Push what was settled, so that the run that continues this session finds it."""
        names = naming.names(key)
        root = f"{self.directory}/{names.parent}"
        if fault != "paused" and naming.MANIFEST in files.entries(partial):
            place.offer(self._tree(partial, f"{root}/{names.partial}"), below=(f"{root}/{names.partial}",))
            pushed = ask.tools.call("push_work", {"summary": "what was settled so far"})
            ask.log(pushed.text)
            if pushed.refused == "nothing-committed":  # as much as the run before: another one would get no further
                return "completed", "", "no-progress"
        return "paused", fault, ""

    def _hand_in(
        self, ask: frameworks.Ask, place: Workplace, key: model.Key, entry: model.ReferenceEntry
    ) -> tuple[sessions.TurnStatus, sessions.Fault, str]:
        names = naming.names(key)
        root = f"{self.directory}/{names.parent}"
        if not any(row.status == "encoded" for row in entry.results):
            return "completed", "", rules_outcome.why_nothing(entry.results)
        if ask.finals and not entry.built:  # a continued session: what was validated is what would be handed in again
            return "completed", "", "validation-failed"
        target = self.references / names.local
        try:
            tree = self._tree(target, f"{root}/{names.directory}")
        except errors.InputError as error:
            ask.log(str(error))
            return "completed", "", "reference-too-big"
        place.offer(tree, below=(f"{root}/{names.directory}", f"{root}/{names.partial}"))
        pushed = ask.tools.call("push_work", {"summary": "the reference"})
        if pushed.refused == "nothing-committed" and place.head == place.base:
            return "completed", "", "reference-is-there"
        if pushed.refused not in {"", "nothing-committed"}:
            return "completed", "", f"push-{pushed.refused}"
        self.handed_in = True
        title = f"Encode {key.database} ({key.dialect}) for {key.benchmark}"
        written = {
            "title": title,
            "summary": rules_outcome.summary(entry.results),
            "risks": rules_outcome.left_out(entry.results),
        }
        opened = ask.tools.call("open_draft", written)
        if opened.refused not in {"", "draft-exists"}:
            return "completed", "", f"draft-{opened.refused}"
        started = ask.tools.call("start_final_run", {})
        return "completed", "", f"validation-{started.refused}" if started.refused else ""

    def _tree(self, folder: Path, below: str) -> dict[str, bytes]:
        tree = files.tree(folder, limit=validate.TREE_BYTES)
        for name, data in tree.items():
            if len(data) > FILE_BYTES:
                message = f"{name} of the reference has {len(data)} bytes, more than {FILE_BYTES}"
                raise errors.InputError(message)
        return {f"{below}/{name}": data for name, data in tree.items()}
