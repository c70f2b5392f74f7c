"""Databases as families: what a wave plans for benchmarks whose knowledge is encoded into references.

A database is a folder below the entry's ``data`` at the base commit, with its knowledge base in it. Without a source of its
own an entry offers each database that has no complete reference there; the candidate's subject names the state of the
inputs (git's object id of their folder), so that a closed draft is offered again once they change.

``refused`` puts a candidate to the encoder's own validator before its family is claimed: what the command line would
refuse, a wave refuses with the same sentence, and neither a claim, a file nor a run is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud import errors
from klaud.encoder import naming, request
from klaud.planner import decide, decide_plan, model

if TYPE_CHECKING:
    from klaud.encoder import model as bounds
    from klaud.planner import settings, tree
    from klaud.session import model as session

KNOWLEDGE = "_kb.jsonl"
"""What the name of a knowledge base ends with."""


def known(entry: settings.References, files: tree.Tree) -> tuple[decide_plan.Known, ...]:
    """Return the families of an entry, ``<name>:<database>[.<dialect>]``; a folder whose name is none is reported."""
    found = []
    for database in _databases(entry, files):
        inputs = files.oid(f"{entry.data}/{database}")
        dialects = ["postgres"]
        if f"{entry.data}/{database}/{database}.sqlite" in files.paths:
            dialects.insert(0, "sqlite")
        for dialect in dialects:
            defaults: dict[str, Any] = {**entry.options, "database": database}
            if dialect != "sqlite":
                defaults["dialect"] = dialect
            else:
                defaults.pop("dialect", None)
            try:
                family = naming.names(naming.key(entry.name, database, dialect)).family
            except errors.InputError as error:
                family = f"{entry.name}:{database}"
                found.append(_broken(entry, family, str(error)))
                break
            found.append(
                decide_plan.Known(
                    benchmark=entry.name,
                    family=family,
                    kind="encode",
                    entries=({"database": database, "dialect": dialect},),
                    inputs=inputs,
                    defaults=defaults,
                )
            )
    return tuple(found)


def _broken(entry: settings.References, family: str, why: str) -> decide_plan.Known:
    return decide_plan.Known(benchmark=entry.name, family=family, kind="encode", code="unreadable", message=why)


def _databases(entry: settings.References, files: tree.Tree) -> list[str]:
    head = f"{entry.data}/"
    parts = [path.removeprefix(head).split("/") for path in files.paths if path.startswith(head)]
    return [one[0] for one in parts if len(one) == 2 and one[1] == f"{one[0]}{KNOWLEDGE}"]


def missing(entry: settings.References, of: tuple[decide_plan.Known, ...], files: tree.Tree) -> decide_plan.SourceRead:
    """Return the offers of an entry without sources: its databases, in its dialect, without a complete reference."""
    dialect = entry.options.get("dialect", "sqlite")
    offers = []
    for one in of:
        if one.code or one.entries[0]["dialect"] != dialect:
            continue
        place = f"{entry.directory}/{one.family.replace(':', '/', 1)}/{naming.MARKER}"
        if place not in files.paths:
            text = f"encode {one.entries[0]['database']} at {one.inputs[:12]}"
            offers.append(model.Offer(family=one.family, subject=text))
    return decide_plan.SourceRead(benchmark=entry.name, source=f"{entry.data} (no reference yet)", offers=tuple(offers))


def refused(brief: session.Brief, entry: settings.References | None, policy: bounds.Policy) -> decide.Stopped | None:
    """Return why a candidate of kind ``encode`` cannot start, in the validator's own sentence; None where it can."""
    program = entry.program if entry is not None else ()
    try:
        request.check(request.from_brief(brief, program=program), policy)
    except errors.InputError as error:
        return decide.Stopped(
            gate="dispatch", code="request-refused", message=decide.words_of(error), unblock=error.advice
        )
    return None
