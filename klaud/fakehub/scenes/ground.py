"""What every built scene stands on: who there is, a token, a configuration, a default branch with workflow files."""

from __future__ import annotations

from typing import Any

BOT = "klaud-bot"
BOT_ID = 90001
REVIEWER = "review-bot[bot]"
REVIEWER_ID = 90002
MAINTAINER = "alice"
MAINTAINER_ID = 101
TOKEN = "scene-token"  # noqa: S105 - made up, known to the hub of a scene alone

CONFIG: dict[str, Any] = {
    "bot": BOT_ID,
    "bot-login": BOT,
    "benchmarks": [
        {
            "name": "codecs",
            "families": {"files": ["configs/*.yaml"]},
            "generator": {
                "layouts": [
                    {
                        "when": ["tools/matrix.py"],
                        "inputs": ["tools", "configs"],
                        "configs": ["configs/*.yaml"],
                        "commands": [["python3", "{root}/tools/matrix.py", "{family}", "{configs}"]],
                    }
                ]
            },
            "rows": {"file": "rows.json"},
            "sources": [{"file": "candidates.jsonl"}],
            "workflows": {
                "smoke": "bench-smoke.yml",
                "final": "bench-final.yml",
                "final-label": "full-sweep",
                "results-artifact": "benchmark-results",
            },
            "edit-scope": {"values": [{"files": ["configs/*.yaml"], "keys": ["*.image"]}]},
        }
    ],
}

CANDIDATE_WORKFLOW = """name: klaud candidate
run-name: klaud candidate ${{ inputs.candidate }} [klaud ${{ inputs.wave }}-${{ inputs.candidate }}]
on:
  workflow_dispatch:
    inputs:
      wave: {required: true}
      candidate: {required: true}
      claim: {required: true}
jobs:
  session:
    runs-on: ubuntu-latest
    steps: [{run: exec klaud session}]
"""

SMOKE_WORKFLOW = """name: smoke
on:
  workflow_dispatch:
    inputs:
      marker: {required: false}
jobs:
  bench:
    runs-on: ubuntu-latest
    steps: [{run: make bench}]
"""

FINAL_WORKFLOW = """name: final
on:
  pull_request:
    types: [labeled, synchronize]
jobs:
  bench:
    if: contains(github.event.pull_request.labels.*.name, 'full-sweep')
    runs-on: ubuntu-latest
    steps: [{run: make bench}]
"""

PLAN_WORKFLOW = """name: klaud plan
on:
  schedule: [{cron: '0 3 * * *'}]
  workflow_dispatch: {}
jobs:
  recover:
    runs-on: ubuntu-latest
    steps: [{run: exec klaud recover}]
"""

WORKFLOWS = {
    ".github/workflows/klaud-candidate.yml": CANDIDATE_WORKFLOW,
    ".github/workflows/bench-smoke.yml": SMOKE_WORKFLOW,
    ".github/workflows/bench-final.yml": FINAL_WORKFLOW,
    ".github/workflows/klaud-plan.yml": PLAN_WORKFLOW,
}


def base() -> dict[str, Any]:
    """Return a scene with nothing in it to do."""
    return {
        "scene": 1,
        "clock": {"start": "2026-03-02T03:00:00Z"},
        "accounts": [
            {"login": BOT, "id": BOT_ID, "role": "write"},
            {"login": MAINTAINER, "id": MAINTAINER_ID, "role": "maintain"},
            {"login": "bob", "id": 102},
            {"login": REVIEWER, "id": REVIEWER_ID, "type": "Bot"},
        ],
        "tokens": [{"value": TOKEN, "account": BOT}],
        "labels": ["klaud-handoff", "full-sweep"],
        "config": CONFIG,
        "commits": [
            {
                "name": "base",
                "files": {
                    "configs/gpu.yaml": "family-1:\n  image: one\n",
                    "tools/matrix.py": "print('[]')\n",
                    "candidates.jsonl": "",
                    "rows.json": "[]",
                    **WORKFLOWS,
                },
                "author": MAINTAINER,
                "date": "-30d",
            }
        ],
        "branches": {},
        "refs": [],
        "pulls": [],
        "runs": [],
    }
