"""Small worlds for the planner: an in-memory GitHub with the real lease store on it, and plans for it."""

from __future__ import annotations

from typing import Any

from klaud import names
from klaud.baselines import model as baselines
from klaud.leases import model as leases
from klaud.leases import store
from klaud.planner import act, decide, model, run
from klaud.review import model as review
from tests.support import memory_gateway, memory_world

FILE = "configs/codecs.yaml"
KEYS = ("zlib", "bz2", "lzma", "gzip", "brotli", "snappy")
WORKFLOW = "klaud-candidate.yml"


def family(key: str) -> str:
    return f"{FILE}:{key}"


def candidate(key: str, subject: str = "level 6", **more: Any) -> model.Candidate:
    name = family(key)
    return model.Candidate(
        candidate=names.candidate_id(name, subject), family=name, benchmark="codecs", subject=subject, **more
    )


def plan(*keys: str, wave: str = "70.1", blocked: tuple[model.Blocked, ...] = ()) -> model.Plan:
    return model.Plan(
        wave=wave,
        base="a" * 40,
        seed=7,
        at="2026-03-02T06:00:00Z",
        candidates=tuple(candidate(key) for key in keys),
        blocked=blocked,
    )


def reviewed(one: model.Candidate, verdict: review.Verdict = "proceed") -> review.Decision:
    reason: review.Reason = "no-overlap" if verdict == "proceed" else "edits-entry"
    return review.Decision(
        candidate=one.candidate, family=one.family, verdict=verdict, reason=reason, message="m", pulls=()
    )


def given(made: model.Plan, **changes: Any) -> run.Given:
    """Return what earlier jobs would have found for a plan when everything is well."""
    usual: dict[str, Any] = {
        "plan": made,
        "in_recovery": {},
        "review": review.ReviewResult(mode="rules", decisions=tuple(reviewed(one) for one in made.candidates)),
        "verdicts": {
            ("codecs", one.family): baselines.Verdict(benchmark="codecs", family=one.family, verdict="verified")
            for one in made.candidates
        },
        "bundle": lambda one: f"bundle of {one.candidate}".encode(),
        "figures": decide.NotAsked(),
    }
    return run.Given(**{**usual, **changes})


def world(
    on: memory_world.World,
    *,
    run_id: int = 70,
    client: str = "planner",
    policy: model.Policy | None = None,
) -> act.World:
    """Return one planner run's view of a world."""
    ref_names = names.RefNames()
    refs = memory_gateway.ref_store(on, client=client)
    return act.World(
        gateway=memory_gateway.gateway(on, client=client),
        store=store.LeaseStore(refs=refs, names=ref_names, repository=on.repository.full_name, clock=on.clock),
        clock=on.clock,
        names=ref_names,
        repository=on.repository.full_name,
        me=leases.Holder(run_id=run_id, attempt=1, job="select", nonce=f"nonce{run_id}"),
        policy=policy or model.Policy(),
        bot=on.bot.id,
        candidate_workflow=WORKFLOW,
    )


def claims(on: memory_world.World) -> dict[str, leases.Claim]:
    """Return the claims that stand, by family key."""
    snapshot = world(on, client="reader").store.snapshot()
    ids = {names.short_id(family(key)): key for key in KEYS}
    return {
        ids[ref.rpartition("/")[2]]: held.record
        for ref, held in snapshot.claims.items()
        if isinstance(held, leases.Held) and isinstance(held.record, leases.Claim)
    }


def candidate_runs(on: memory_world.World) -> list[str]:
    """Return the names of the candidate runs, oldest first."""
    return [one.display_title for _, one in sorted(on.state.runs.items()) if one.path.endswith(WORKFLOW)]


def select(on: memory_world.World, *keys: str, **changes: Any) -> run.Selected:
    """Select among the candidates of those families (default: all)."""
    return run.select(world(on), given(plan(*(keys or KEYS)), **changes))


def codes(found: model.Selection) -> dict[str, str]:
    """Return what was decided, by family key."""
    return {one.family.partition(":")[2]: one.code for one in found.decisions}


def dispatch(on: memory_world.World, selection: model.Selection, **more: Any) -> model.Selection:
    """Dispatch a selection as the planner run that ``world`` is told (default: 70)."""
    return run.dispatch(world(on, **more), selection, branch="main")
