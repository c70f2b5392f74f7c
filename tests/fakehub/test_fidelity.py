"""What GitHub publishes of its own shapes, compared with the hub's. Skipped, with the reason, where it is not at hand.

``KLAUD_OPENAPI``: ``generated/api.github.com.json`` of npm ``@octokit/openapi``; ``KLAUD_GRAPHQL_SCHEMA``:
``schema.graphql`` of npm ``@octokit/graphql-schema``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import graphql
import pytest

from klaud.fakehub import graph
from klaud.fakehub.routes import build_router
from tests.support import openapi

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = ("/_feeds/{name}", "/_blobs/{artifact_id}", "/_logs/{job_id}", "/graphql")


@pytest.mark.skipif(openapi.path() is None, reason="KLAUD_OPENAPI does not name GitHub's OpenAPI description")
def test_every_route_is_one_of_githubs() -> None:
    place = openapi.path()
    assert place is not None
    paths = json.loads(place.read_text())["paths"]
    unknown = [
        route.name
        for route in build_router().routes
        if route.template not in OWN and route.method.lower() not in paths.get(route.template, {})
    ]
    assert unknown == []


@pytest.mark.skipif(openapi.path() is None, reason="KLAUD_OPENAPI does not name GitHub's OpenAPI description")
def test_a_wrong_answer_is_caught() -> None:
    label = {
        "id": 1,
        "node_id": "x",
        "url": "https://example.invalid",
        "name": "x",
        "description": None,
        "color": "f",
        "default": False,
    }
    template = "/repos/{owner}/{repo}/labels/{name}"
    assert openapi.problems("GET", template, 200, label) == []
    assert openapi.problems("GET", template, 200, {**label, "id": "1"})
    assert openapi.problems("GET", template, 299, label)
    assert openapi.problems("GET", template, 409, {"message": "Conflict"})
    assert openapi.problems("GET", "/repos/{owner}/{repo}/nope", 200, label)


def differences(ours: graphql.GraphQLSchema, theirs: graphql.GraphQLSchema) -> Iterator[str]:
    """Yield every type, field, argument and word of ours that theirs has not, or has otherwise."""
    for name, mine in ours.type_map.items():
        if name.startswith("__"):
            continue
        yours = theirs.type_map.get(name)
        if type(yours) is not type(mine):
            yield f"{name}: {yours!r}"
            continue
        for field, spec in getattr(mine, "fields", {}).items():
            other = getattr(yours, "fields", {}).get(field)
            if other is None or str(other.type) != str(spec.type):
                yield f"{name}.{field}: {spec.type}"
                continue
            for argument, shape in getattr(spec, "args", {}).items():
                if argument not in other.args or str(other.args[argument].type) != str(shape.type):
                    yield f"{name}.{field}({argument}): {shape.type}"
        yield from (f"{name}: {word}" for word in set(getattr(mine, "values", {})) - set(getattr(yours, "values", {})))
        if isinstance(mine, graphql.GraphQLUnionType) and isinstance(yours, graphql.GraphQLUnionType):
            yield from (f"{name}: {one}" for one in {t.name for t in mine.types} - {t.name for t in yours.types})


def test_our_graphql_is_a_part_of_githubs() -> None:
    place = os.environ.get("KLAUD_GRAPHQL_SCHEMA", "")
    if not (place and Path(place).exists()):
        pytest.skip("KLAUD_GRAPHQL_SCHEMA does not name GitHub's GraphQL schema")
    theirs = graphql.build_schema(Path(place).read_text(), assume_valid=True)
    assert list(differences(graph.schema(), theirs)) == []


def test_a_foreign_field_is_caught() -> None:
    theirs = graphql.build_schema("type Query { a(x: Int): Int }")
    ours = graphql.build_schema("type Query { a(x: String, y: Int): Int b: Int } enum E { A }")
    assert set(differences(ours, theirs)) >= {"Query.a(x): String", "Query.a(y): Int", "Query.b: Int"}
