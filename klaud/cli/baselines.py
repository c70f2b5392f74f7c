"""``klaud regenerate`` and ``klaud verify``: matrices from producers' own generators, and verdicts repeated offline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from klaud import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud.baselines import model

CREDENTIALS = (
    "KLAUD_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "KLAUD_RECORD_KEY", "KLAUD_APP_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY",
    "ANTHROPIC_AUTH_TOKEN", "ACTIONS_RUNTIME_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "AWS_SECRET_ACCESS_KEY",
)  # fmt: skip
"""Variables that must not be set where old commits' code runs."""

_ENDINGS = ("_TOKEN", "_SECRET", "_PASSWORD", "_API_KEY", "_PRIVATE_KEY", "_ACCESS_KEY")


def credential_in(environ: Mapping[str, str]) -> str | None:
    """Return the name of a variable that holds a credential, None where there is none."""
    for name in sorted(environ):
        if environ[name] and (name in CREDENTIALS or name.upper().endswith(_ENDINGS)):
            return name
    return None


def regenerate(  # noqa: PLR0917 - the options of a command
    needs: Annotated[
        Path | None,
        typer.Option("--needs", help="JSON file: a list of {commit, families}, each commit proven trusted before."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write producers.json.")] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--in", help="Instead of both: do every benchmark that has needs in this folder, and write there."
        ),
    ] = None,
    benchmark: Annotated[str, typer.Option("--benchmark", help="Which benchmark of the configuration.")] = "",
    config: Annotated[Path | None, typer.Option("--config", help="Configuration file.")] = None,
    repository: Annotated[Path, typer.Option("--repository", help="The clone whose commits are used.")] = Path(),
    remote: Annotated[str, typer.Option("--remote", help="Where missing commits are fetched from.")] = "origin",
    cache: Annotated[Path | None, typer.Option("--cache", help="Folder of matrices made before.")] = None,
) -> None:
    """Make matrices of producer commits with those commits' own generators, in a sandbox, without a credential."""
    name = credential_in(os.environ)
    if name is not None:
        raise errors.InputError(
            f"the variable {name} is set, and code of old commits must not run beside a credential",
            advice=f"Run klaud regenerate in the job without credentials, or under: env -u {name} klaud regenerate ...",
        )
    if source is not None and needs is None and out is None and not benchmark:
        from klaud.cli import live
        from klaud.planner import files, hand_on

        hand_on.check(source, os.environ)
        for one in live.load_config(config).benchmarks:
            asked = source / files.needs(one.name)
            if asked.exists():
                typer.echo(f"benchmark {one.name}:")
                _regenerate(
                    one, asked, source / files.producers(one.name), repository=repository, remote=remote, cache=cache
                )
        hand_on.tell(source, "produce", os.environ)
        return
    if needs is None or out is None or source is not None:
        raise errors.InputError("what to make is not clear", advice="Give --needs FILE and --out FILE, or --in FOLDER.")
    _regenerate(_policy(config, benchmark), needs, out, repository=repository, remote=remote, cache=cache)


def _regenerate(
    policy: model.Policy, needs: Path, out: Path, *, repository: Path, remote: str, cache: Path | None
) -> None:
    import msgspec

    from klaud.baselines import model, producers, run

    wanted = _decoded(needs, list[model.Need])
    produced = run.regenerate(policy, wanted, git=producers.GitObjects(repository, remote=remote), cache_folder=cache)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(msgspec.json.format(msgspec.json.encode(produced), indent=1) + b"\n")
    made = sum(isinstance(item, model.Matrix) for item in produced.matrices)
    typer.echo(
        f"{made} of {len(produced.matrices)} matrices ({produced.cached} from the cache, {produced.calls} calls)"
    )
    walls = produced.isolation
    typer.echo(f"sandbox: {walls.method}, network {walls.network}{f' ({walls.why})' if walls.why else ''}")
    for item in produced.matrices:
        if isinstance(item, model.NotGenerated):
            typer.echo(f"  {item.family} at {item.commit[:12]}: {item.code}: {item.error}")


def keep_matrices(
    source: Annotated[Path, typer.Option("--in", help="Folder with what produce and review handed on.")],
    cache: Annotated[Path, typer.Option("--cache", help="Folder of matrices, as restored; kept ones are added.")],
    repository: Annotated[Path, typer.Option("--repository", help="The clone whose commits are meant.")] = Path(),
    config: Annotated[Path | None, typer.Option("--config", help="Configuration file.")] = None,
) -> None:
    """Keep a wave's matrices for later waves; runs nothing of the repository, and refuses a credential."""
    name = credential_in(os.environ)
    if name is not None:
        raise errors.InputError(
            f"the variable {name} is set: what is kept must come from a job that holds nothing",
            advice=f"Run klaud keep-matrices in the job without credentials, or under: env -u {name} klaud ...",
        )
    from klaud.baselines import keep, model, producers, sandbox, settings
    from klaud.cli import live
    from klaud.planner import codec, files, hand_on, proof

    hand_on.check(source, os.environ)
    evidences = files.read(source, proof.FILE, proof.Evidences, made_by="klaud review")
    parts: list[tuple[model.Policy, list[model.Need], model.Produced]] = []
    policies = live.load_config(config).benchmarks
    git = producers.GitObjects(repository)
    for one in policies:
        current = evidences.of(one.name)
        if current is not None:
            families = tuple(sorted({item.family for item in current.produced.matrices}))
            parts.append((one, [model.Need(commit=evidences.base, families=families)], current.produced))
        asked, made = (files.read_bytes(source, name) for name in (files.needs(one.name), files.producers(one.name)))
        if asked is not None and made is not None:
            wanted = codec.decode(asked, list[model.Need], where=files.needs(one.name))
            parts.append((one, wanted, codec.decode(made, model.Produced, where=files.producers(one.name))))
    cache.mkdir(parents=True, exist_ok=True)
    box = sandbox.Sandbox(settings.Bounds(), hidden=[git.git_dir()])
    kept = keep.keep(parts, git=git, folder=cache, box=box)
    typer.echo(f"{kept.new} matrices are new, {kept.dropped} files were thrown away, {kept.entries} are kept")
    hand_on.output("changed", "true" if kept.new or kept.dropped else "false", os.environ)
    hand_on.output("digest", kept.digest, os.environ)


def verify(  # noqa: PLR0917 - the options of a command
    bundle: Annotated[Path | None, typer.Option("--bundle", help="Evidence bundle to judge again.")] = None,
    digest: Annotated[
        str, typer.Option("--digest", help="What the bundle's digest must be (it is in the ledger).")
    ] = "",
    rows: Annotated[Path | None, typer.Option("--rows", help="Published rows: JSON list or JSONL.")] = None,
    matrix: Annotated[Path | None, typer.Option("--matrix", help="A generator's output: JSON list or JSONL.")] = None,
    family: Annotated[str, typer.Option("--family", help="The family, <file>:<key>, that the matrix is of.")] = "",
    benchmark: Annotated[str, typer.Option("--benchmark", help="Which benchmark of the configuration.")] = "",
    config: Annotated[Path | None, typer.Option("--config", help="Configuration file.")] = None,
) -> None:
    """Repeat a verdict offline: from an evidence bundle, or for rows against one matrix."""
    from klaud.baselines import render

    if bundle is not None and rows is None and matrix is None:
        from klaud.baselines import bundle as bundles

        checked = bundles.check(_bytes(bundle))
        typer.echo(render.explain_verdict(checked.verdict))
        if checked.problem:
            typer.echo(f"not repeated: {checked.problem}")
            raise typer.Exit(1)
        if digest and digest != checked.digest:
            typer.echo(f"another bundle: its digest is {checked.digest}, not {digest}")
            raise typer.Exit(1)
        typer.echo(f"repeated from the bundle alone, same bytes: {checked.digest}")
        return
    if rows is None or matrix is None or not family or bundle is not None:
        raise errors.InputError(
            "what to verify is not clear", advice="Give --bundle FILE, or --rows FILE --matrix FILE --family FILE:KEY."
        )
    verdict = _held(_policy(config, benchmark), rows, matrix, family)
    typer.echo(render.explain_verdict(verdict))
    if verdict.verdict != "verified":
        raise typer.Exit(1)


ASSUMED = "0" * 40
"""The commit under which rows and matrix files are held together: no commit has this id."""


def _held(policy: model.Policy, rows: Path, matrix: Path, family: str) -> model.Verdict:
    """Judge rows against one matrix as if the rows' runs were proven to be of the matrix's commit."""
    from klaud import feeds
    from klaud.baselines import codec, decide, model, schema

    plan = schema.plan(policy)
    raws = feeds.read_rows(str(rows), name=str(rows)).rows
    entries = feeds.read_rows(str(matrix), name=str(matrix)).rows
    repository, host = _whose(raws, policy)
    found = codec.RowCodec(plan, repository=repository, host=host).decode_all(raws)
    decoded = found.rows
    for bad in found.malformed:
        typer.echo(f"row {bad.index} {bad.why}", err=True)
    if found.malformed_count:
        typer.echo(f"{found.malformed_count} row(s) could not be read", err=True)
    for other, number in found.aside.items():
        typer.echo(f"{number} row(s) of another benchmark are left aside: {other}", err=True)
    runs = {
        str(row.run_id): model.Proof(run_id=row.run_id, attempt=row.attempt or 1, commit=ASSUMED, how="run")
        for row in decoded
        if row.run_id is not None
    }
    proofs = model.Proofs(runs=runs, commits={ASSUMED: model.Trusted(commit=ASSUMED, how="listed")})
    produced = model.Produced(
        benchmark=policy.name, matrices=(model.Matrix(commit=ASSUMED, family=family, entries=entries),)
    )
    return decide.judge(plan, decoded, proofs, produced, families=[family], current=ASSUMED).verdicts[0]


def _whose(raws: tuple[dict[str, Any], ...], policy: model.Policy) -> tuple[str, str]:
    """Return (repository, host): GITHUB_REPOSITORY, else that of the first run address."""
    import re
    import urllib.parse

    from klaud.baselines import schema

    host = urllib.parse.urlsplit(os.environ.get("GITHUB_SERVER_URL", "https://github.com")).netloc
    given = os.environ.get("GITHUB_REPOSITORY", "")
    places = schema.paths(policy.rows.run_url, "run_url")
    for raw in raws:
        match = re.match(r"https://([^/]+)/([^/]+/[^/]+)/actions/runs/", str(schema.look(raw, places)))
        if match:
            return given or match[2], host if given else match[1]
    return given or "owner/name", host


def _policy(config: Path | None, benchmark: str) -> model.Policy:
    from klaud.cli import live

    known = {each.name: each for each in live.load_config(config).benchmarks}
    if not benchmark and len(known) == 1:
        return next(iter(known.values()))
    if benchmark not in known:
        raise errors.InputError(f"--benchmark is {benchmark!r}: the configuration has {', '.join(sorted(known))}")
    return known[benchmark]


def _bytes(path: Path) -> bytes:
    from klaud.baselines import bundle as bundles

    try:
        with path.open("rb") as file:
            return file.read(bundles.MAX_BYTES + 1)
    except OSError as error:
        raise errors.InputError(f"{path} cannot be read: {error.strerror}") from None


def _decoded(path: Path, form: Any) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(_bytes(path), type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise errors.InputError(f"{path} is not what is expected: {str(error)[:200]}") from None
