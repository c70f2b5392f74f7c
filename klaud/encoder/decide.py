"""The encoder's rules: in which order, what a submission must show, what collides, what a directory is.

Everything here is a function of records. Graph walks are loops, never recursion: a chain of ten thousand items is data
like any other.
"""

from __future__ import annotations

import collections
import heapq
from typing import TYPE_CHECKING

import msgspec

from klaud.encoder import documents, model, naming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


CYCLE_LOOK = 12
"""Items looked at to spell a cycle out: a person reads a short one, of a long one its size is enough."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``order``: ids, each after all that it depends on. ``deferred``: ids that no order can reach, with the reason."""

    order: tuple[int, ...]
    deferred: dict[int, str]


def plan(items: Sequence[model.Item]) -> Plan:
    """Return the order of sessions; items in a cycle, and what depends on them, are deferred with a note.

    Among items that are free at the same time the smaller id comes first, so the order is the same everywhere.
    """
    children = {item.id: set(item.children) for item in items}
    parents: dict[int, list[int]] = {item.id: [] for item in items}
    for item in items:
        for child in children[item.id]:
            parents[child].append(item.id)
    left = {number: len(of) for number, of in children.items()}
    free = [number for number, count in left.items() if count == 0]
    heapq.heapify(free)
    order: list[int] = []
    while free:
        number = heapq.heappop(free)
        order.append(number)
        for parent in parents[number]:
            left[parent] -= 1
            if left[parent] == 0:
                heapq.heappush(free, parent)
    stuck = set(children).difference(order)
    cyclic = _in_cycles(stuck, children, parents)
    deferred = {
        number: (
            f"in a dependency cycle: {_cycle_text(number, cyclic, children)}"
            if number in cyclic
            else f"depends on a dependency cycle through item {min(children[number] & stuck)}"
        )
        for number in sorted(stuck)
    }
    return Plan(order=tuple(order), deferred=deferred)


def _in_cycles(stuck: set[int], children: Mapping[int, set[int]], parents: Mapping[int, list[int]]) -> dict[int, int]:
    """Return the members of ``stuck`` that reach themselves, each with the size of its group (Kosaraju, as loops)."""
    finished: list[int] = []
    seen: set[int] = set()
    for root in sorted(stuck):
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(sorted(children[root] & stuck)))]
        while path:
            number, rest = path[-1]
            step = next((child for child in rest if child not in seen), None)
            if step is None:
                finished.append(number)
                path.pop()
            else:
                seen.add(step)
                path.append((step, iter(sorted(children[step] & stuck))))
    cyclic: dict[int, int] = {}
    seen.clear()
    for root in reversed(finished):
        if root in seen:
            continue
        group, todo = {root}, [root]
        seen.add(root)
        while todo:
            for parent in parents[todo.pop()]:
                if parent in stuck and parent not in seen:
                    seen.add(parent)
                    group.add(parent)
                    todo.append(parent)
        if len(group) > 1 or root in children[root]:
            cyclic.update(dict.fromkeys(group, len(group)))
    return cyclic


def _cycle_text(start: int, cyclic: Mapping[int, int], children: Mapping[int, set[int]]) -> str:
    """Return the shortest way from ``start`` back to itself; of a long one only how many items are in it."""
    came: dict[int, int] = {}
    todo = collections.deque([start])
    while len(came) <= CYCLE_LOOK:
        number = todo.popleft()
        for child in sorted(children[number] & cyclic.keys()):
            if child == start:
                way = [start]
                step = number
                while step != start:
                    way.append(step)
                    step = came[step]
                return " -> ".join(map(str, [start, *reversed(way[1:]), start]))
            if child not in came:
                came[child] = number
                todo.append(child)
    return f"{start} -> {min(children[start] & cyclic.keys())} -> ... ({cyclic[start]} items)"


# -- one item


def blocked(item: model.Item, rows: Mapping[int, model.Row]) -> str:
    """Return why ``item`` cannot be encoded now: a dependency that has no entities; empty when nothing blocks it."""
    missing = [
        child for child in item.children if child != item.id and (child not in rows or rows[child].status != "encoded")
    ]
    if not missing:
        return ""
    first = missing[0]
    status = rows[first].status if first in rows else "not encoded"
    return f"depends on item {first}, which is {'not encoded' if status == 'not encoded' else status}"


def check_submission(
    submission: model.Submission,
    *,
    item: model.Item,
    database: str,
    dependencies: Mapping[int, Sequence[model.Definition]],
    policy: model.Policy,
) -> tuple[model.Problem, ...]:
    """Return what is wrong with a submission as far as it can be told without the semantic layer.

    ``dependencies`` holds the accepted definitions of each item that ``item`` depends on. Whether the named entities
    exist and carry the id is ``check_entities``, after the definitions were applied.
    """
    if submission.status == "deferred":
        if not submission.notes.strip():
            return (model.Problem(check="submitted", text="an item is deferred with a reason in notes, there is none"),)
        return ()
    found: list[model.Problem] = []
    if len(submission.definitions) > policy.definitions:
        text = f"{len(submission.definitions)} definitions: more than {policy.definitions}"
        return (model.Problem(check="within-limits", text=text),)
    if not submission.entities:
        found.append(model.Problem(check="at-least-one", text="no entity is named: an encoded item has at least one"))
    found += [
        model.Problem(
            check="uses-dependencies",
            text=f"item {item.id} depends on item {child}, but no definition uses one of its entities by name: "
            + ", ".join(naming.canonical(database, definition) for definition in of),
        )
        for child, of in dependencies.items()
        if not any(documents.uses(definition, entity) for definition in submission.definitions for entity in of)
    ]
    defined = {naming.canonical(database, definition) for definition in submission.definitions}
    found += [
        model.Problem(check="carries-id", text=f"{reference} is defined but not named among the entities")
        for reference in sorted(defined.difference(submission.entities))
        if submission.entities
    ]
    return tuple(found)


def check_entities(
    references: Sequence[str], *, item: int, database: str, held: documents.Documents
) -> tuple[model.Problem, ...]:
    """Return what is wrong with the named entities, given the documents with the submission's definitions applied."""
    found: list[model.Problem] = []
    for reference in references:
        shown = reference[:200]
        if len(set(references)) != len(references) and list(references).count(reference) > 1:
            found.append(model.Problem(check="canonical", text=f"{shown} is named more than once"))
            continue
        parts = reference.split(".")
        if parts[0] != database or len(parts) not in (2, 3):
            better = documents.resolve(reference, database, held)
            if better and better != reference:
                text = f"{shown} is not a canonical reference: write {better}"
                found.append(model.Problem(check="canonical", text=text))
            else:
                text = f"{shown} is not an entity of datasource {database}: write {database}.<model>.<name>"
                found.append(model.Problem(check="exists", text=text))
            continue
        entity = documents.find(parts[1], parts[2] if len(parts) == 3 else "", held)
        if entity is None:
            better = documents.resolve(reference, database, held)
            if better:
                text = f"{shown} is not a canonical reference: write {better}"
                found.append(model.Problem(check="canonical", text=text))
            else:
                found.append(model.Problem(check="exists", text=f"{shown} does not exist"))
        elif (tag := documents.tag(entity)) != item:
            whose = "a part of the schema" if tag is None else f"of item {tag}"
            text = f"{shown} is {whose}: it does not carry the id {item}"
            found.append(model.Problem(check="carries-id", text=text))
    return tuple(dict.fromkeys(found))


def failed_row(
    item: int, problems: Sequence[model.Problem], ended: model.ItemResult, policy: model.Policy
) -> model.Row:
    """Return the row of an item whose last attempt failed.

    A time-out is an error even after an earlier submission; so is an agent that crashed or never submitted. A
    submission that failed its checks in every attempt defers the item.
    """
    text = "; ".join(f"{problem.check}: {problem.text}" for problem in problems)[: policy.note_characters]
    if ended.ended != "finished":
        detail = f": {ended.detail}" if ended.detail else ""
        return model.Row(kb_id=item, status="error", error=f"{ended.ended}{detail}"[: policy.note_characters])
    if any(problem.check == "submitted" for problem in problems):
        return model.Row(kb_id=item, status="error", error=text)
    return model.Row(kb_id=item, status="deferred", notes=f"failed its checks {policy.attempts} times: {text}")


# -- the whole


def collisions(accepted: Mapping[int, Sequence[model.Definition]]) -> dict[int, str]:
    """Return the items that must be deferred because of a collision, with the reason.

    Two items that claim the same (host, name, kind) are both out; so is every item whose definitions use an entity of
    one that is out, until nothing more falls.
    """
    owners: dict[tuple[str, str, str], list[int]] = {}
    for number, definitions in accepted.items():
        for definition in definitions:
            owners.setdefault(documents.claim(definition), []).append(number)
    out: dict[int, str] = {}
    for (kind, host, name), numbers in sorted(owners.items()):
        distinct = sorted(set(numbers))
        if len(distinct) < 2:
            continue
        what = f"{kind} {host}.{name}" if name else f"{kind} {host}"
        for number in distinct:
            others = ", ".join(str(other) for other in distinct if other != number)
            out.setdefault(number, f"collision: {what} is claimed by item {others} too")
    todo = sorted(out, reverse=True)
    while todo:
        gone = todo.pop()
        for number, definitions in accepted.items():
            if number in out:
                continue
            if any(documents.uses(mine, theirs) for mine in definitions for theirs in accepted[gone]):
                out[number] = f"uses entities of item {gone}, which was deferred"
                todo.append(number)
    return out


def settle(items: Iterable[model.Item], rows: Mapping[int, model.Row]) -> tuple[model.Row, ...]:
    """Return one row for each item, in the order of the knowledge base; an item without one was not started in time."""
    return tuple(
        rows.get(item.id, model.Row(kb_id=item.id, status="deferred", notes="budget: not started in time"))
        for item in items
    )


def row_problems(items: Sequence[model.Item], rows: Sequence[model.Row]) -> tuple[str, ...]:
    """Return how ``rows`` fail to be exactly one for each item, each with entities exactly when encoded."""
    ids = [row.kb_id for row in rows]
    known = {item.id for item in items}
    found = [f"item {number} has {ids.count(number)} results" for number in sorted(set(ids)) if ids.count(number) > 1]
    found += [f"item {number} has no result" for number in sorted(known.difference(ids))]
    found += [f"result {number} is of no item" for number in sorted(set(ids).difference(known))]
    found += [
        f"item {row.kb_id} is {row.status} and has {len(row.entities)} entities"
        for row in rows
        if (row.status == "encoded") != bool(row.entities)
    ]
    return tuple(found)


# -- what a place holds


def state(entries: Collection[str], *, partial: bool) -> model.State:
    """Return what a directory with these names in it is; ``partial`` when it is the ``.partial`` one."""
    if not entries:
        return "absent"
    if partial:
        return "partial" if naming.MANIFEST in entries else "scrap"
    return "complete" if naming.MARKER in entries else "scrap"


OURS = frozenset(
    {"datasources", "models", "memories", naming.ROWS, naming.RESULTS, naming.USAGE, naming.MARKER, naming.MANIFEST}
)
"""What a reference, a partial one and a build in progress consist of."""


def foreign(entries: Collection[str]) -> tuple[str, ...]:
    """Return the names that no build of klaud makes: a directory that has any is never removed."""
    return tuple(sorted(name for name in entries if name not in OURS and not name.endswith(".klaud-tmp")))
