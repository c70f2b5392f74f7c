"""Judge the corpus of real producers and say how many of its cases come out as they should.

``python tools/verify_corpus.py DIR``: DIR holds ``<name>.jsonl.gz`` (matrices made by a commit's own generator) and
``<name>.cases.jsonl.gz`` (published rows with the verdict that is right). Exit status 1 where a case differs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import sys
from typing import TYPE_CHECKING, Any

from klaud.baselines import codec, decide, model, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = model.Policy(
    name="corpus",
    equivalences=("aggregate-mirror", "one-worker-aggregate-as-single-node", "agentic-single-node-disagg-flag"),
)
REPOSITORY = "acme/bench"


def lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a compressed file, blank lines left out."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                yield json.loads(line)


def matrices(folder: pathlib.Path) -> dict[tuple[str, str], model.Matrix]:
    """Return the matrices by commit and family; a failed call followed by a good one is the capability fallback."""
    found: dict[tuple[str, str], model.Matrix] = {}
    refused: set[tuple[str, str]] = set()
    for path in sorted(folder.glob("*.jsonl.gz")):
        if path.name.endswith(".cases.jsonl.gz"):
            continue
        for item in lines(path):
            key = item["commit"], item["family"]
            if item["exit"] == 0:
                dropped = ("--no-evals",) if key in refused else ()
                entries = tuple(each for each in item["entries"] if not each.get("eval-only"))
                found[key] = model.Matrix(commit=key[0], family=key[1], entries=entries, dropped=dropped)
            elif "unrecognized arguments: --no-evals" in item["stderr"]:
                refused.add(key)
    return found


def judge(case: dict[str, Any], matrix: model.Matrix) -> list[str]:
    """Return in what a case differs from what is expected; empty where all is right."""
    plan = schema.plan(POLICY)
    found = codec.RowCodec(plan, repository=REPOSITORY).decode_all(case["rows"])
    rows = found.rows
    runs = {
        str(row.run_id): model.Proof(run_id=row.run_id, attempt=1, commit=case["commit"], how="run")
        for row in rows
        if row.run_id is not None
    }
    proofs = model.Proofs(runs=runs, commits={case["commit"]: model.Trusted(commit=case["commit"], how="ancestor")})
    produced = model.Produced(benchmark=POLICY.name, matrices=(matrix,))
    judge_ = decide.Judge(plan, proofs, produced, [matrix.family], case["commit"])
    verdict = judge_.run(rows)[0]
    expected = case["expected"]
    reasons = {reason.code: reason.count for reason in verdict.reasons}
    wrong = []

    def same(what: str, got: object, want: object) -> None:
        if got != want:
            wrong.append(f"{what}: got {got}, expected {want}")

    same("verdict", verdict.verdict, expected["verdict"])
    same("reasons", reasons, expected.get("reasons", {}))
    if "equivalences" in expected:
        same("equivalences", dict(verdict.equivalences), expected["equivalences"])
    if "points" in expected:
        same("points", len(judge_.relied(matrix.family).rows), expected["points"])
    same("malformed rows", found.malformed_count, expected.get("malformed-rows", 0))
    same("malformed named", len(found.malformed), min(found.malformed_count, codec.MAX_NAMED_MALFORMED))
    if near := expected.get("near-miss"):
        at = {row.digest: row.index for row in rows}
        example = verdict.reasons[0].examples[0]
        same("near miss row", at.get(example.row), near["row"])
        same("near miss fields", [each.field for each in example.differences], near["fields"])
    return wrong


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    known = matrices(folder)
    total = right = 0
    kinds: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.cases.jsonl.gz")):
        for case in lines(path):
            wrong = judge(case, known[case["commit"], case["family"]])
            total += 1
            right += not wrong
            tally = kinds.setdefault(case["case"], [0, 0])
            tally[0] += not wrong
            tally[1] += 1
            for text in wrong:
                print(f"{case['case']} {case['family']}: {text}")
    for kind, (good, count) in sorted(kinds.items()):
        print(f"{kind:14} {good} of {count}")
    fallback = sum(bool(matrix.dropped) for matrix in known.values())
    print(f"{right} of {total} cases right; {len(known)} matrices, {fallback} by the capability fallback")
    return 0 if total and right == total else 1


if __name__ == "__main__":
    sys.exit(main())
