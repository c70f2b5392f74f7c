"""Print the benchmark matrix of the codecs repository, before evaluations: ``--no-evals`` is not known."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import yaml


def entries(families: dict[str, dict[str, object]], keys: list[str]) -> list[dict[str, object]]:
    """Return the matrix entries of the named families."""
    found: list[dict[str, object]] = []
    for key in keys:
        if key not in families:
            sys.exit(f"matrix: no family {key!r}")
        family = families[key]
        for scenario in family["scenarios"]:  # type: ignore[attr-defined]
            entry = {
                "image": family["image"],
                "model": f"corpus/{family['corpus']}",
                "model-prefix": family["corpus"],
                "precision": family.get("precision", "bytes"),
                "framework": family["codec"],
                "runner": family["runner"],
                "isl": scenario["block-kib"],
                "osl": scenario["block-kib"],
                "conc": scenario["streams"],
                "tp": 1,
                "exp-name": f"{key}_{scenario['block-kib']}k",
                "disagg": False,
            }
            found.append(entry)
    return found


def main() -> None:
    """Read the command line and print the matrix."""
    parser = argparse.ArgumentParser(prog="matrix")
    verbs = parser.add_subparsers(dest="verb", required=True)
    config = verbs.add_parser("test-config")
    config.add_argument("--config-keys", nargs="+", required=True)
    config.add_argument("--config-files", nargs="+", required=True, type=Path)
    args = parser.parse_args()
    families: dict[str, dict[str, object]] = {}
    for path in args.config_files:
        families |= yaml.safe_load(path.read_text(encoding="utf-8"))
    json.dump(entries(families, args.config_keys), sys.stdout)


if __name__ == "__main__":
    main()
