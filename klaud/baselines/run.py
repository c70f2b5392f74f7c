"""Tie the parts together: rows, producers, matrices, verdicts, bundles.

The split follows the credentials (planner.md):

* ``read_rows`` and ``regenerate`` need none; ``regenerate`` is what runs code of old commits.
* ``prove`` needs the gateway, so it runs where the token is; it runs no code of the repository.
* ``needs``, ``runs_of``, ``verdicts`` are pure and run anywhere; ``bundle.make`` too.

In one wave: the current matrices (``regenerate`` for the base commit and every family), ``read_rows``, ``runs_of``,
``prove``, ``needs``, ``regenerate`` again for the producers' commits, ``join`` of both results, ``verdicts``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klaud.baselines import cache, decide, decide_points, generate, lookup, model, observe, producers, sandbox, schema

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Sequence

    from klaud.github import gateway as gateways

RowsRead = observe.RowsRead
FeedFailed = observe.FeedFailed
Place = observe.Place


def read_rows(
    policy: model.Policy, *, root: pathlib.Path, repository: str, host: str = "github.com", place: Place | None = None
) -> RowsRead | FeedFailed:
    """Return the benchmark's published rows. ``root``: where files of the configuration are; ``repository``: owner/name."""
    where = place or Place(root=root)
    return observe.published_rows(schema.plan(policy), place=where, repository=repository, host=host)


def runs_of(policy: model.Policy, read: RowsRead, produced: model.Produced, families: Sequence[str]) -> tuple[int, ...]:
    """Return the producer runs that matter to ``families``: those of rows of a coarse kind that their matrices have.

    ``produced`` has the current matrices. Rows of no family's kind (a drifted coarse column) count too.
    """
    plan = schema.plan(policy)
    matrices = lookup.Matrices(plan, produced)
    asked = set(families)
    found: set[int] = set()
    for row in read.rows:
        if row.run_id is not None:
            owners = matrices.owners(row.identity)
            if not owners or owners & asked:
                found.add(row.run_id)
    return tuple(sorted(found))


def prove(
    policy: model.Policy,
    read: RowsRead,
    *,
    runs: Sequence[int],
    gateway: gateways.Gateway,
    git: producers.GitObjects,
    tip: str,
    default_branch: str,
    root: pathlib.Path,
    place: Place | None = None,
) -> model.Proofs | FeedFailed:
    """Prove the commits of ``runs`` and say which of them are trusted. ``tip``: the default branch's head commit.

    The commits themselves are fetched here, so that ancestry can be told; nothing of them is run.
    """
    plan = schema.plan(policy)
    where = place or Place(root=root)
    proven = observe.prove_runs(plan, read.rows, runs, gateway=gateway, place=where)
    selected = observe.changelog(plan, runs, place=where)
    if isinstance(selected, FeedFailed):
        return selected
    commits = {proof.commit for proof in proven.values() if isinstance(proof, model.Proof)}
    git.fetch(commits)
    trusted = producers.trust(
        commits,
        git=git,
        tip=tip,
        gateway=gateway,
        default_branch=default_branch,
        listed=policy.generator.trusted,
    )
    return model.Proofs(runs=proven, commits=trusted, changelog=selected)


def needs(
    policy: model.Policy,
    read: RowsRead,
    proofs: model.Proofs,
    produced: model.Produced,
    *,
    families: Sequence[str],
) -> tuple[model.Need, ...]:
    """Return the producer commits whose matrices must be made to judge ``families``, with the families at each.

    A sibling of an asked family (one with entries of the same coarse kind today) is needed where a row could be its
    point. Only proven and trusted commits are ever in the answer, and only those of each point's newest run.
    """
    plan = schema.plan(policy)
    matrices = lookup.Matrices(plan, produced)
    asked = set(families)
    found: dict[str, set[str]] = {}
    for group in decide_points.newest_rows(plan, read.rows, matrices.shared(current="")):
        for row in group.newest:
            proof = proofs.runs.get(str(row.run_id))
            if not isinstance(proof, model.Proof) or not isinstance(proofs.commits.get(proof.commit), model.Trusted):
                continue
            owners = matrices.owners(row.identity)
            if owners & asked:
                found.setdefault(proof.commit, set()).update(owners)
    return tuple(model.Need(commit=commit, families=tuple(sorted(found[commit]))) for commit in sorted(found))


def regenerate(
    policy: model.Policy,
    wanted: Sequence[model.Need],
    *,
    git: producers.GitObjects,
    cache_folder: pathlib.Path | None = None,
    box: sandbox.Sandbox | None = None,
) -> model.Produced:
    """Make the wanted matrices with the commits' own generators, in a sandbox; what the cache has is not made again.

    Only for commits that are trusted. Call it in a process without credentials (``klaud.cli.baselines`` refuses
    otherwise). MissingToolError where the policy requires walls that this host does not grant.
    """
    schema.plan(policy)
    store = cache.Cache(cache_folder)
    walls = box or sandbox.Sandbox(
        policy.generator.bounds, required=policy.generator.isolation == "required", hidden=[git.git_dir()]
    )
    generation = generate.Generation(policy, git=git, store=store, box=walls)
    results = generation.run(wanted)
    return model.Produced(
        benchmark=policy.name,
        matrices=tuple(results),
        isolation=walls.found() or model.Isolation(why="no generator had to be started"),
        calls=generation.calls,
        cached=generation.cached,
        rebuilt=store.rebuilt,
    )


def join(*parts: model.Produced) -> model.Produced:
    """Return several results as one: a later part's matrix replaces an earlier one of the same commit and family."""
    found = {(item.commit, item.family): item for part in parts for item in part.matrices}
    last = parts[-1]
    return model.Produced(
        benchmark=last.benchmark,
        matrices=tuple(found[key] for key in sorted(found)),
        isolation=next((part.isolation for part in parts if part.calls), last.isolation),
        calls=sum(part.calls for part in parts),
        cached=sum(part.cached for part in parts),
        rebuilt=sum(part.rebuilt for part in parts),
    )


def verdicts(
    policy: model.Policy,
    read: RowsRead | FeedFailed,
    proofs: model.Proofs,
    produced: model.Produced,
    *,
    families: Sequence[str],
    current: str,
) -> model.Judgement:
    """Return a verdict for each of ``families``. ``current``: the commit whose matrices say what is generated today.

    Never raises for what the data is: a fault of klaud's own is ``internal-error`` of the family that it happened to.
    """
    plan = schema.plan(policy)
    if isinstance(read, FeedFailed):
        return decide.feed_failed(plan, families, read.code, read.message)
    try:
        judged = decide.judge(plan, read.rows, proofs, produced, families=families, current=current)
        found, outside, relied = judged.verdicts, judged.outside, judged.relied
    except Exception:  # noqa: BLE001 - find out whose fault it is, one family at a time
        names = sorted(set(families))
        found = tuple(_alone(plan, read, proofs, produced, family=family, current=current) for family in names)
        outside, relied = 0, {}
    return model.Judgement(
        verdicts=found,
        rows=len(read.rows),
        malformed=read.malformed,
        malformed_count=read.malformed_count,
        aside=read.aside,
        outside=outside,
        relied=relied,
    )


def _alone(
    plan: schema.Plan,
    read: RowsRead,
    proofs: model.Proofs,
    produced: model.Produced,
    *,
    family: str,
    current: str,
) -> model.Verdict:
    try:
        return decide.judge(plan, read.rows, proofs, produced, families=[family], current=current).verdicts[0]
    except Exception as error:  # noqa: BLE001 - this family's fault alone
        return decide.internal_error(plan, family, type(error).__name__)
