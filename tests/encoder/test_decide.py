"""The encoder's rules as properties: order, cycles, collisions, names."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaud.encoder import decide, documents, model, naming


def item(number: int, *children: int) -> model.Item:
    return model.Item(
        id=number, knowledge=f"k{number}", description="", definition="", type="domain_knowledge", children=children
    )


graphs = st.integers(1, 12).flatmap(
    lambda size: st.lists(st.sets(st.integers(0, size - 1), max_size=3), min_size=size, max_size=size).map(
        lambda edges: tuple(item(number, *sorted(of)) for number, of in enumerate(edges))
    )
)


def reachable(items: tuple[model.Item, ...], start: int) -> set[int]:
    found: set[int] = set()
    todo = list(items[start].children)
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo.extend(items[number].children)
    return found


@given(graphs)
@settings(max_examples=300, deadline=None)
def test_the_plan_orders_exactly_what_reaches_no_cycle(items: tuple[model.Item, ...]) -> None:
    plan = decide.plan(items)
    reach = {one.id: reachable(items, one.id) for one in items}
    cyclic = {number for number, of in reach.items() if number in of}
    stuck = {number for number, of in reach.items() if number in cyclic or of & cyclic}
    assert set(plan.deferred) == stuck
    assert sorted([*plan.order, *plan.deferred]) == [one.id for one in items]
    at = {number: index for index, number in enumerate(plan.order)}
    assert all(at[child] < at[number] for number in plan.order for child in items[number].children)
    for number, why in plan.deferred.items():
        assert why.startswith("in a dependency cycle: " if number in cyclic else "depends on a dependency cycle")


def test_a_chain_of_ten_thousand_is_data_like_any_other() -> None:
    size = 10_000
    chain = tuple(item(number, *([number + 1] if number + 1 < size else [])) for number in range(size))
    began = time.monotonic()
    assert decide.plan(chain).order == tuple(reversed(range(size)))
    ring = (*chain[:-1], item(size - 1, 0))
    plan = decide.plan(ring)
    assert set(plan.deferred) == set(range(size))
    assert plan.deferred[5].endswith("(10000 items)")
    assert time.monotonic() - began < 30


def measure(host: str, name: str, formula: str = "count(*)") -> model.Definition:
    return model.Definition(kind="measure", model=host, name=name, body={"formula": formula})


def test_collisions_take_every_owner_and_what_uses_them() -> None:
    accepted = {
        1: (measure("a", "x"), measure("a", "own")),
        2: (measure("a", "x", "sum(b)"),),
        3: (measure("a", "y", "x + 1"),),
        4: (measure("b", "z", "sum(a.y)"),),
        5: (measure("a", "fine", "'x' = label"),),
        6: (measure("b", "x"),),
    }
    assert decide.collisions(accepted) == {
        1: "collision: measure a.x is claimed by item 2 too",
        2: "collision: measure a.x is claimed by item 1 too",
        3: "uses entities of item 1, which was deferred",
        4: "uses entities of item 3, which was deferred",
    }


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=3), max_size=6))
def test_no_collision_is_left_when_the_owners_are_out(claims: list[list[str]]) -> None:
    accepted = {number: tuple(measure("m", name) for name in of) for number, of in enumerate(claims)}
    out = decide.collisions(accepted)
    left = [name for number, of in enumerate(claims) if number not in out for name in set(of)]
    assert len(left) == len(set(left))
    owners = {name: {n for n, of in enumerate(claims) if name in of} for name in "abcd"}
    assert set(out) == {n for of in owners.values() if len(of) > 1 for n in of}


USES = [
    ("revenue / 2", "measure", "orders", True),
    ("orders.revenue / 2", "measure", "lines", True),
    ("customers.orders.revenue", "measure", "lines", True),
    ("revenue / 2", "measure", "lines", False),
    ("total_revenue", "measure", "orders", False),
    ("'revenue'", "measure", "orders", False),
    ("sum(x) -- revenue", "measure", "orders", False),
    ("/* revenue */ sum(x)", "measure", "orders", False),
    ('"revenue" + 1', "measure", "orders", True),
    ("REVENUE", "measure", "orders", True),
    ("lines.revenue", "measure", "orders", False),
    ("revenue.x", "measure", "orders", False),
]


@pytest.mark.parametrize(("text", "kind", "host", "used"), USES)
def test_a_name_counts_as_used_only_as_a_name(text: str, kind: str, host: str, used: bool) -> None:
    del kind
    assert documents.uses(measure(host, "m", text), measure("orders", "revenue")) is used


def test_descriptions_are_no_use() -> None:
    entity = measure("orders", "revenue")
    told = model.Definition(
        kind="measure", model="orders", name="m", body={"formula": "count(*)", "description": "revenue"}
    )
    assert not documents.uses(told, entity)
    nested = model.Definition(
        kind="model",
        model="n",
        body={"source_queries": [{"source_model": "orders", "measures": [{"formula": "revenue"}]}]},
    )
    assert documents.uses(nested, entity)
    assert documents.uses(nested, model.Definition(kind="model", model="orders"))


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,12}", fullmatch=True)
databases = st.from_regex(r"[A-Za-z0-9_]{1,12}", fullmatch=True)
keys = st.builds(naming.key, names, databases, st.sampled_from(model.DIALECTS))


@given(keys, keys)
def test_no_two_references_share_a_name(one: model.Key, two: model.Key) -> None:
    first, second = naming.names(one), naming.names(two)
    assert naming.key_of_artifact(first.artifact) == one
    assert naming.key_of_family(first.family) == one
    if one != two:
        assert first.local != second.local
        assert first.artifact != second.artifact
        assert first.family != second.family
    if one.benchmark == two.benchmark and one != two:
        mine = {first.directory, first.partial, first.lock, first.holder}
        assert not mine & {second.directory, second.partial, second.lock, second.holder}
        assert not second.directory.startswith(first.building)
        assert not second.building.startswith(first.building)


@pytest.mark.parametrize(
    "name", ["", "klaud-reference.a.b", "klaud-reference.a.b.mysql", "klaud-reference.a.b.sqlite.x", "x.a.b.sqlite",
             "klaud-reference..b.sqlite", "klaud-reference.a.b-c.sqlite"]
)  # fmt: skip
def test_almost_a_name_is_none(name: str) -> None:
    assert naming.key_of_artifact(name) is None


@pytest.mark.parametrize("text", ["a", "a:", ":b", "a:b.sqlite", "a:b.", "a:b.mysql", "a:b.postgres.x", "a/b:c"])
def test_almost_a_family_is_none(text: str) -> None:
    assert naming.key_of_family(text) is None


def test_every_item_has_one_row_and_the_rest_is_budget() -> None:
    items = (item(1), item(2))
    rows = decide.settle(items, {2: model.Row(kb_id=2, status="error", error="x")})
    assert [(row.kb_id, row.status) for row in rows] == [(1, "deferred"), (2, "error")]
    assert decide.row_problems(items, rows) == ()
    assert decide.row_problems(items, rows[:1]) == ("item 2 has no result",)
    assert decide.row_problems(items[:1], rows) == ("result 2 is of no item",)


def test_an_agent_can_spell_an_entity_in_many_ways_and_is_told_the_canonical_one() -> None:
    held: documents.Documents = {
        "orders": {"name": "orders", "columns": [{"name": "total"}], "measures": [{"name": "n"}]},
        "lines": {"name": "lines", "columns": [{"name": "order_id"}], "measures": [{"name": "n"}]},
    }
    for text in ("orders.total", "total", "shop.orders.TOTAL", "lines.orders.total", "Shop.orders.total"):
        assert documents.resolve(text, "shop", held) == "shop.orders.total"
    for text in ("n", "nothing", "shop.orders.nothing", "", "."):
        assert documents.resolve(text, "shop", held) == ""
    assert documents.resolve("orders", "shop", held) == "shop.orders"


HELD: documents.Documents = {
    "orders": {"name": "orders", "columns": [{"name": "id"}], "measures": [{"name": "n", "meta": {"kb_id": 1}}]},
    "mine": {"name": "mine", "meta": {"kb_id": 1}, "columns": [{"name": "x"}]},
}


def test_an_entity_named_twice_is_not_canonical() -> None:
    found = decide.check_entities(["shop.orders.n"] * 2, item=1, database="shop", held=HELD)
    assert found == (model.Problem(check="canonical", text="shop.orders.n is named more than once"),)
    assert decide.check_entities(["shop.mine", "shop.orders.n"], item=1, database="shop", held=HELD) == ()


@pytest.mark.parametrize(
    ("reference", "check", "said"),
    [
        ("shop.orders.N", "canonical", "write shop.orders.n"),
        ("shop.orders.gone", "exists", "does not exist"),
        ("shop.gone", "exists", "does not exist"),
        ("a.b.c.d", "exists", "is not an entity of datasource shop"),
        ("shop.mine.x", "carries-id", "is a part of the schema"),
    ],
)
def test_a_reference_that_is_not_the_items_own(reference: str, check: str, said: str) -> None:
    (problem,) = decide.check_entities([reference], item=1, database="shop", held=HELD)
    assert (problem.check, said in problem.text) == (check, True)


def test_applying_replaces_another_items_entity_and_never_the_schema() -> None:
    again, problems = documents.apply(HELD, 2, "shop", [measure("orders", "n", "sum(id)")])
    assert problems == ()
    assert again["orders"]["measures"] == [{"formula": "sum(id)", "name": "n", "meta": {"kb_id": 2}}]
    assert HELD["orders"]["measures"][0]["meta"] == {"kb_id": 1}
    model_again, problems = documents.apply(HELD, 2, "shop", [model.Definition(kind="model", model="Mine")])
    assert (problems, set(model_again), documents.tag(model_again["Mine"])) == ((), {"orders", "Mine"}, 2)
    column = model.Definition(kind="column", model="orders", name="n", body={"sql": "id"})
    _, problems = documents.apply(HELD, 2, "shop", [column])
    assert "taken by item 1 as another kind" in problems[0].text
    _, problems = documents.apply(HELD, 2, "shop", [measure("orders", "m"), measure("orders", "m")])
    assert [problem.text for problem in problems] == ["measure orders.m is defined twice"]


def test_meanings_of_no_column_are_one_warning() -> None:
    meanings = [model.Meaning(table="ORDERS", column="ID", text="the id")]
    meanings += [model.Meaning(table="t", column=f"c{n}", text="x") for n in range(12)]
    described, warnings = documents.describe(HELD, meanings)
    assert described["orders"]["columns"] == [{"name": "id", "description": "the id"}]
    assert len(warnings) == 1
    assert warnings[0].endswith("and 2 more")
