"""Sweeps that are disturbed step by step, kept so that they can be repeated, cut down, and written as a scene.

``Played`` is a scene with its history: each ``Step`` says in plain values who does what before which call of a sweep, and
which call is spoilt how. Where a promise is broken, ``Played.incident`` is the state that it began in and the steps since;
``shrunk`` makes it as small as it gets: a later beginning, fewer steps, troubles and sessions. ``memory_to_scene`` writes
what is left as a scene file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from typing import TYPE_CHECKING

from klaud import names
from tests.support import memory_gateway, memory_invariants
from tests.support.memory_scenes import Made, Scene
from tests.support.memory_standard import Built
from tests.support.memory_world import Call, Killed, Spoil, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from klaud.leases import model as leases

QUIET_STEPS = 8
"""Sweeps without trouble after which nothing of a dead session may be left."""

STILL = 2
"""Sweeps in a row, an hour apart, that write nothing: then no later one would."""

DEEDS = (
    "bot's comment", "close", "comment", "edit", "hand-off", "label", "push", "rename", "un-draft",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Step:
    """One sweep and what disturbs it.

    ``deed`` is done by a person to the draft of session ``who`` before call ``at`` of the sweep (``ghost``: by a deleted
    account); call ``bad`` is spoilt. Afterwards ``wait`` seconds pass and, where ``next_run``, another run of ours begins.
    ``before``: so many seconds pass first, and another run of ours begins.
    """

    deed: str = ""
    who: int = 0
    ghost: bool = False
    at: int = 0
    spoil: Spoil | None = None
    bad: int = 0
    wait: float = 0.0
    next_run: bool = False
    before: float | None = None


@dataclasses.dataclass
class Incident:
    """A broken promise: where it began, and the steps that led to it. ``ends``: it shows only when all is quiet again."""

    state: State
    time: datetime.datetime
    serial: int
    me: leases.Holder | None
    made: list[Made]
    theirs: dict[int, str]
    cancels: dict[int, str]
    verdict: str
    steps: tuple[Step, ...] = ()
    ends: bool = False
    wrong: tuple[str, ...] = ()


class Played:
    """A scene that is swept and disturbed. ``wrong`` collects broken promises, ``story`` says what happened."""

    def __init__(self, scene: Scene, made: list[Made], theirs: dict[int, str] | None = None) -> None:
        self.scene = scene
        self.made = made
        self.theirs: dict[int, str] = dict(theirs or {})
        self.story: list[str] = []
        self.wrong: list[str] = []
        self.marks: list[Incident | None] = []
        self.steps: list[Step] = []
        self.calls: list[list[Call]] = []
        self.ended = False
        self.broken: int | None = None

    # -- what is kept
    def mark(self) -> Incident | None:
        """Return where we are, None where something is under way that cannot be kept (a run that is being cancelled)."""
        world = self.scene.world
        if world.timers:
            return None
        return Incident(
            state=world.state.copy(),
            time=world.time,
            serial=world._serial,
            me=self.scene.me,
            made=list(self.made),
            theirs=dict(self.theirs),
            cancels=dict(world.cancel_behaviour),
            verdict=self.scene.finisher.verdict,
        )

    def incident(self) -> Incident:
        """Return what went wrong, from the latest mark on from which it is repeated (else from the first)."""
        until = len(self.steps) if self.broken is None else self.broken
        found = [
            dataclasses.replace(mark, steps=tuple(self.steps[at:until]), ends=self.ended, wrong=tuple(self.wrong))
            for at, mark in enumerate(self.marks[:until])
            if mark is not None
        ]
        return next((one for one in reversed(found) if replayed(one).wrong), found[0])

    # -- people
    def deed(self, name: str, who: int, *, ghost: bool = False) -> None:
        """Let a person do one thing to a session's draft, if it has one."""
        made = self.made[who % len(self.made)]
        if made.number is None:
            return
        world, number = self.scene.world, made.number
        acts: dict[str, Callable[[], object]] = {
            "push": lambda: world.push(made.branch, f"a person's {world.serial()}", by=world.alice),
            "comment": lambda: world.comment(number, "hm", by=None if ghost else world.alice),
            "label": lambda: world.label(number, f"label {world.serial()}", by=world.alice),
            "rename": lambda: world.rename(number, "better", by=world.alice),
            "edit": lambda: world.edit_body(number, "better", by=world.alice),
            "hand-off": lambda: world.label(number, names.HANDOFF_LABEL, by=world.alice),
            "un-draft": lambda: world.ready(number, by=world.alice),
            "close": lambda: world.close(number, by=world.alice),
            "bot's comment": lambda: world.comment(number, "lint", by=world.reviewer),
        }
        pull = world.state.pulls[number]
        if name == "un-draft" and not pull.draft:
            return
        acts[name]()
        self.story.append(f"{name} on #{number} at call {len(world.calls)}, {pull.state}")
        if name == "close":
            self.theirs.pop(number, None)
        elif name != "bot's comment" and pull.open and f"refs/heads/{made.branch}" in world.state.refs:
            self.theirs[number] = name

    # -- sweeping
    def play(self, step: Step) -> None:
        """Run one sweep as it is disturbed, and check every promise."""
        scene, world = self.scene, self.scene.world
        self.marks.append(self.mark())
        self.steps.append(step)
        self.pass_time(step)
        begun = len(world.calls)
        world.keep_history = True

        def hook(call: Call) -> None:
            who = self.made[step.who % len(self.made)]
            if (
                step.deed and call.k == begun + step.at and who.final is None
            ):  # else its own finish may be at work on it
                self.deed(step.deed, step.who, ghost=step.ghost)

        def rule(call: Call) -> Spoil | None:
            if call.k != begun + step.bad or step.spoil is None:
                return None
            self.story.append(f"{step.spoil.name} at call {call.k} ({call.name})")
            return step.spoil

        world.before.append(hook)
        world.rules.append(rule)
        with contextlib.suppress(Killed):
            self.report = scene.sweep()
        world.before.remove(hook)
        world.rules.remove(rule)
        self.calls.append(world.calls[begun:])
        self.check(interrupted=step.spoil in {Spoil.KILL_AFTER, Spoil.KILL_BEFORE})
        world.advance(step.wait)
        if step.next_run:
            scene.next_run()

    def pass_time(self, step: Step) -> None:
        """Let the time before a step pass."""
        if step.before is not None:
            self.scene.world.advance(step.before)
            self.scene.next_run()

    def check(self, *, interrupted: bool) -> None:
        """Ask the world itself whether a promise is broken."""
        scene = self.scene
        state = scene.world.state
        living = [m for m in self.made if state.runs[m.run_id].status != "completed"]
        taken = {n for n in self.theirs if names.HANDOFF_LABEL in state.pulls[n].labels}
        people = tuple(self.theirs) if not interrupted else ()
        quiet = tuple(m for m in living if m.number not in taken and m.claim and not self._moved_by_person(m))
        self.wrong += memory_invariants.violations(Built(scene, None, people, quiet))
        if self.wrong and self.broken is None:
            self.broken = len(self.steps)

    def _moved_by_person(self, made: Made) -> bool:
        """Tell whether a person closed a session's draft or pushed to its branch: then neither is as the session left it."""
        state, bot = self.scene.world.state, self.scene.world.bot
        events = state.timeline.get(made.number or 0, ())
        tip = state.objects.get(state.refs.get(f"refs/heads/{made.branch}", ""))
        return any(e.kind == "closed" and e.actor != bot for e in events) or (tip is not None and tip.author != bot)

    def end(self) -> None:
        """Sweep without trouble until nothing moves; then nobody's claim, lease or draft may be left over."""
        if self.wrong:
            return
        still = 0
        for _ in range(QUIET_STEPS):
            self.play(Step(before=3600.0))
            moved = self.report.totals.pushes or self.report.totals.writes
            still = 0 if moved else still + 1
            if still == STILL:
                break
        if not self.wrong:
            self.ended = True
            self.wrong += self._leftovers()

    def _leftovers(self) -> Iterator[str]:
        scene, report = self.scene, self.report
        again = scene.sweep()
        if again.totals.pushes or again.totals.writes:
            yield "a sweep right after a quiet one writes"
        if report.red:
            yield f"red without trouble: {report.red}"
        for ref in scene.world.state.refs:
            if ref.startswith("refs/klaud/leases/"):
                yield f"a lease is left: {ref}"
        for made in self.made:
            if self._claim_leaks(made):
                yield f"a claim of a dead session is left: {made.key}"
        for entry in report.sessions:
            if entry.row == "unmatched":
                yield f"no row decides {entry.session}"

    def _claim_leaks(self, made: Made) -> bool:
        """Tell whether a claim stands although its session's run is over and it waits for nothing."""
        state = self.scene.world.state
        ref = self.scene.names.claim(names.family_of(made.candidate))
        over = state.runs[made.run_id].status == "completed"
        waits = made.final is not None and state.runs[made.final].status != "completed"
        return ref in state.refs and over and not waits


# -- repeating and cutting down


def begun(incident: Incident) -> Played:
    """Return the world that an incident begins in, as a new process sees it."""
    scene = Scene()
    world = scene.world
    world.state = incident.state.copy()
    world.time = scene.started = incident.time
    scene.started -= datetime.timedelta(hours=12)  # its own beginning is over
    world._serial = incident.serial
    world.cancel_behaviour = dict(incident.cancels)
    world.main = world.state.refs["refs/heads/main"]
    scene.me = incident.me
    scene.finisher.verdict = incident.verdict
    scene.gateway = memory_gateway.gateway(world, client="sweep")
    scene.refs = memory_gateway.ref_store(world, client="sweep")
    return Played(scene, list(incident.made), incident.theirs)


def replayed(incident: Incident) -> Played:
    """Play an incident again; ``wrong`` of the result says whether it still is one."""
    played = begun(incident)
    played.check(interrupted=False)
    if played.wrong:  # it begins broken: what follows shows nothing
        return begun(incident)
    for step in incident.steps:
        played.play(step)
        if played.wrong:
            return played
    if incident.ends and incident.steps:
        played.wrong += played._leftovers()
        played.ended = True
    return played


def at_first_sweep(incident: Incident) -> Incident:
    """Return the incident as it is when its first sweep begins."""
    first = incident.steps[0] if incident.steps else Step()
    if first.before is None:
        return incident
    played = begun(incident)
    played.pass_time(first)
    mark = played.mark()
    assert mark is not None, "nothing was under way"
    steps = (dataclasses.replace(first, before=None), *incident.steps[1:])
    return dataclasses.replace(mark, steps=steps, ends=incident.ends, wrong=incident.wrong)


def shrunk(incident: Incident) -> Incident:
    """Return a smaller incident that still breaks a promise: nothing can be taken from it without losing that."""
    best = _taken(incident, incident)
    assert best is not None, "what is not repeated cannot be made smaller"
    while True:
        for smaller in _smaller(best):
            found = _taken(smaller, best)
            if found is not None:
                best = found
                break
        else:
            return best


def _taken(tried: Incident, best: Incident) -> Incident | None:
    """Return ``tried`` with what is wrong in it, None where nothing is."""
    try:
        played = replayed(tried)
    except (KeyError, AssertionError):
        return None
    if not played.wrong:
        return None
    del best
    done = tried.steps if played.ended else tried.steps[: len(played.steps)]
    return dataclasses.replace(tried, steps=done, ends=played.ended, wrong=tuple(played.wrong))


def _smaller(incident: Incident) -> Iterator[Incident]:
    """Yield smaller incidents, the boldest cuts first."""
    played = replayed(incident)
    for index in range(len(played.marks) - 1, 0, -1):
        mark = played.marks[index]
        if mark is not None:
            yield dataclasses.replace(mark, steps=incident.steps[index:], ends=incident.ends)
    for made in incident.made:
        if len(incident.made) > 1:
            yield without(incident, made)
    for index, step in enumerate(incident.steps):
        rest = incident.steps[:index], incident.steps[index + 1 :]
        if rest[0] or rest[1]:
            yield dataclasses.replace(incident, steps=(*rest[0], *rest[1]))
        for lesser in (
            dataclasses.replace(step, spoil=None, bad=0),
            dataclasses.replace(step, deed="", who=0, ghost=False, at=0),
            dataclasses.replace(step, wait=0.0),
        ):
            if lesser != step:
                yield dataclasses.replace(incident, steps=(*rest[0], lesser, *rest[1]))
    for run_id in incident.state.runs:
        needed = {m.run_id for m in incident.made} | {m.smoke for m in incident.made} | {m.final for m in incident.made}
        if run_id not in needed and (incident.me is None or run_id != incident.me.run_id):
            state = incident.state.copy()
            del state.runs[run_id]
            state.jobs.pop(run_id, None)
            yield dataclasses.replace(incident, state=state)


def without(incident: Incident, made: Made) -> Incident:
    """Return the incident without one session: its refs, draft and runs."""
    state = incident.state.copy()
    for ref in list(state.refs):
        if made.candidate in ref or ref.endswith(f"/claims/{names.family_of(made.candidate)}"):
            del state.refs[ref]
    for number, pull in list(state.pulls.items()):
        if pull.head_ref == made.branch:
            for table in (state.pulls, state.bases, state.timeline, state.comments, state.files):
                table.pop(number, None)
    for run_id in (made.run_id, made.smoke, made.final):
        if run_id is not None:
            state.runs.pop(run_id, None)
            state.jobs.pop(run_id, None)
    place = incident.made.index(made)
    kept = [m for m in incident.made if m is not made]
    steps = tuple(_renumbered(step, place, len(incident.made)) for step in incident.steps)
    theirs = {n: what for n, what in incident.theirs.items() if n in state.pulls}
    return dataclasses.replace(incident, state=state, made=kept, theirs=theirs, steps=steps)


def _renumbered(step: Step, gone: int, count: int) -> Step:
    who = step.who % count
    if who == gone:
        return dataclasses.replace(step, deed="", who=0)
    return dataclasses.replace(step, who=who - (who > gone))
