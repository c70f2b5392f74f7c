"""The decoders and the GraphQL documents against GitHub's own published material.

Fetched by the test set-up, not committed; without it these are skipped. ``KLAUD_WEBHOOKS``: ``api.github.com/index.json``
of npm ``@octokit/webhooks-examples`` (real payloads); ``KLAUD_GRAPHQL_SCHEMA``: ``schema.graphql`` of npm
``@octokit/graphql-schema``.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import graphql as core
import pytest

from klaud.github import decode, graphql

if TYPE_CHECKING:
    from collections.abc import Callable

WEBHOOKS = os.environ.get("KLAUD_WEBHOOKS", "")
SCHEMA = os.environ.get("KLAUD_GRAPHQL_SCHEMA", "")

DECODERS: dict[str, Callable[[str], object]] = {
    "pull_request": decode.pull,
    "workflow_run": decode.run,
    "workflow_job": decode.job,
    "workflow": decode.workflow,
    "repository": decode.repository,
    "sender": decode.account,
    "comment": decode.numbered,
}


def payloads(event: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = [example.get(name) for example in event["examples"]]
    whole = [one for one in found if isinstance(one, dict)]
    if name == "pull_request":
        return [one for one in whole if "head" in one]
    return [one for one in whole if name != "workflow_run" or "path" in one]


@pytest.mark.skipif(not WEBHOOKS, reason="KLAUD_WEBHOOKS is not set: GitHub's example payloads are not here")
def test_github_s_own_payloads_are_decoded() -> None:
    events = json.loads(Path(WEBHOOKS).read_text(encoding="utf-8"))
    decoded: Counter[str] = Counter()
    for event in events:
        for name, decoder in DECODERS.items():
            for payload in payloads(event, name):
                decoder(json.dumps(payload))
                decoded[name] += 1
    assert set(decoded) == set(DECODERS), decoded
    assert decoded["pull_request"] >= 29


DOCUMENTS = {
    "PullsOfHeads": graphql.pulls_of_heads(graphql.BATCH),
    "PullDetails": graphql.pull_details(graphql.BATCH),
    "TimelinePage": graphql.TIMELINE_PAGE,
    "Viewer": graphql.VIEWER,
    "RepositoryId": graphql.REPOSITORY_ID,
    "ConvertToDraft": graphql.CONVERT_TO_DRAFT,
    "MarkReady": graphql.MARK_READY,
    "UpdateRefs": graphql.UPDATE_REFS,
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_document_is_graphql_of_one_operation_by_its_name(name: str) -> None:
    parsed = core.parse(DOCUMENTS[name])
    operations = [
        node.name.value for node in parsed.definitions if isinstance(node, core.OperationDefinitionNode) and node.name
    ]
    assert operations == [name]


@pytest.mark.skipif(not SCHEMA, reason="KLAUD_GRAPHQL_SCHEMA is not set: GitHub's GraphQL schema is not here")
def test_every_document_is_valid_in_github_s_own_schema() -> None:
    schema = core.build_schema(Path(SCHEMA).read_text(encoding="utf-8"), assume_valid=True)
    told = {name: [str(error) for error in core.validate(schema, core.parse(text))] for name, text in DOCUMENTS.items()}
    assert {name: wrong for name, wrong in told.items() if wrong} == {}


def test_a_batch_stays_below_the_hosts_node_limit() -> None:
    """GitHub refuses a query of more than 500,000 nodes."""
    per_pull = 3 * graphql.ROWS + 1
    assert graphql.BATCH * graphql.PULLS_OF_HEAD * per_pull < 500_000
