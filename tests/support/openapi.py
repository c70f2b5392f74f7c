"""Validates answers against GitHub's OpenAPI description (npm ``@octokit/openapi``), where the file is at hand.

``KLAUD_OPENAPI`` names the file ``api.github.com.json``; the test set-up of CI fetches it. OpenAPI 3.0's ``nullable`` is
rewritten to JSON Schema once at load.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import referencing
import referencing.jsonschema

NOT_IN_IT = ("/graphql", "/_feeds/{name}", "/_blobs/{artifact_id}", "/_logs/{job_id}", "/", "/user/{account_id}")
"""Routes of the hub that the description does not have, or describes by another name."""

ERRORS_NOT_DESCRIBED = (401, 403, 404, 405, 409, 410, 422, 429, 500, 501, 502, 503)
"""GitHub documents few error answers per route; their body is checked by its shape instead."""


def path() -> Path | None:
    """Return the description's file, or None where there is none."""
    name = os.environ.get("KLAUD_OPENAPI", "")
    return Path(name) if name and Path(name).exists() else None


def _nullable(value: Any) -> Any:
    if isinstance(value, list):
        return [_nullable(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: _nullable(item) for key, item in value.items()}
    if made.pop("nullable", False) is True:
        if isinstance(made.get("type"), str):
            made["type"] = [made["type"], "null"]
            if "enum" in made:
                made["enum"] = [*made["enum"], None]
        else:
            made = {"anyOf": [made, {"type": "null"}]}
    return made


@functools.cache
def _specification() -> dict[str, Any]:
    place = path()
    assert place is not None
    loaded: dict[str, Any] = _nullable(json.loads(place.read_text()))
    return loaded


@functools.cache
def _registry() -> Any:
    resource = referencing.Resource(contents=_specification(), specification=referencing.jsonschema.DRAFT4)
    return referencing.Registry().with_resource("urn:github", resource)


@functools.cache
def _validator(pointer: str) -> Any:
    return jsonschema.Draft4Validator({"$ref": f"urn:github#{pointer}"}, registry=_registry())


def _escaped(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")


def _known(template: str, place: list[str]) -> bool:
    """Tell where GitHub is known to answer otherwise than it says: a label without a description has null, not a text."""
    return template == "/repos/{owner}/{repo}/pulls" and "labels" in place and place[-1] == "description"


def problems(method: str, template: str, status: int, body: Any) -> list[str]:
    """Return what is wrong with an answer, one line each."""
    paths = _specification()["paths"]
    if template in NOT_IN_IT or status == 501:
        return []
    described = paths.get(template, {}).get(method.lower())
    if described is None:
        return [f"{method} {template}: GitHub has no such route"]
    answer = described["responses"].get(str(status))
    if answer is None:
        if status not in ERRORS_NOT_DESCRIBED:
            return [f"{method} {template}: GitHub does not answer {status}"]
        good = isinstance(body, dict) and {"message", "documentation_url", "status"} <= set(body)
        return [] if good else [f"{method} {template}: {status} without message, documentation_url and status"]
    base = f"/paths/{_escaped(template)}/{method.lower()}/responses/{status}"
    if "$ref" in answer:
        base = answer["$ref"][1:]
        answer = _specification()["components"]["responses"][base.rsplit("/", 1)[1]]
    if "application/json" not in answer.get("content", {}) or isinstance(body, bytes):
        return []
    found = _validator(f"{base}/content/application~1json/schema").iter_errors(body)
    found = [e for e in found if not _known(template, [str(part) for part in e.absolute_path])]
    return [f"{method} {template} {status}: {'/'.join(map(str, e.absolute_path))}: {e.message[:160]}" for e in found]
