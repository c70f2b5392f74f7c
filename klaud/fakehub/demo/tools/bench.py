"""Measure the matrix entries on standard input for real and print the published form, one JSON list of rows.

The "image" of an entry names the codec's settings; settings that the codec does not have fail the run, as an image
that does not start would. Every measurement is checked by a round trip first: a codec that loses data fails too.
"""

from __future__ import annotations

import argparse
import bz2
import concurrent.futures
import json
import lzma
import sys
import time
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = {"fast": 1, "balanced": 6, "small": 9, "extreme": 12}
LEAST_SECONDS = 0.02


def corpus(name: str, kib: int) -> bytes:
    """Return ``kib`` KiB of the named corpus, the same at each call."""
    if name == "json":
        rows = ({"id": n, "name": f"item-{n * 7919 % 1000}", "ok": n % 3 == 0} for n in range(kib * 32))
        raw = b"\n".join(json.dumps(row).encode() for row in rows)
    else:
        words = ("matrix", "family", "producer", "baseline", "claim", "lease", "sweep", "point")
        raw = b" ".join(words[n * n % 8].encode() + str(n * 31 % 97).encode() for n in range(kib * 160))
    return raw[: kib * 1024].ljust(kib * 1024, b".")


def codec(framework: str, image: str) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """Return (compress, decompress) for a codec with an image's settings; ValueError where it has no such settings."""
    level = SETTINGS[image.partition(":")[2]]
    if framework == "zlib":
        return lambda data: zlib.compress(data, level), zlib.decompress
    if framework == "bz2":
        return lambda data: bz2.compress(data, level), bz2.decompress
    if framework == "lzma":
        return lambda data: lzma.compress(data, preset=level), lzma.decompress
    raise ValueError(f"no codec {framework!r}")


def measure(entry: dict[str, object], streams: int) -> dict[str, float]:
    """Return MB/s per stream and the ratio for one point, after a checked round trip."""
    data = corpus(str(entry["model-prefix"]), int(str(entry["isl"])))
    compress, decompress = codec(str(entry["framework"]), str(entry["image"]))
    packed = compress(data)
    if decompress(packed) != data:
        raise ValueError("the round trip lost data")
    rounds, start = 0, time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        while time.perf_counter() - start < LEAST_SECONDS:
            list(pool.map(compress, [data] * streams))
            rounds += streams
    seconds = time.perf_counter() - start
    return {"mb_per_s": round(rounds * len(data) / seconds / 1e6, 3), "ratio": round(len(data) / len(packed), 3)}


def rows(entries: list[dict[str, object]], run_url: str, date: str) -> list[dict[str, object]]:
    """Return one published row for each point of each entry."""
    found = []
    for entry in entries:
        for streams in entry["conc"]:  # type: ignore[attr-defined]
            role = {"tp": 1, "ep": 1, "dp_attention": False, "num_workers": 0}
            found.append(
                {
                    "model": entry["model-prefix"],
                    "hardware": entry["runner"],
                    "framework": entry["framework"],
                    "precision": entry["precision"],
                    "spec_method": "none",
                    "disagg": False,
                    "is_multinode": False,
                    "benchmark_type": "evaluation" if entry.get("eval-only") else "single_turn",
                    "isl": entry["isl"],
                    "osl": entry["osl"],
                    "conc": streams,
                    "offload_mode": "off",
                    "image": entry["image"],
                    **{f"prefill_{name}": value for name, value in role.items()},
                    **{f"decode_{name}": value for name, value in role.items()},
                    "num_prefill_gpu": 1,
                    "num_decode_gpu": 1,
                    "metrics": measure(entry, streams),
                    "date": date,
                    "run_url": run_url,
                }
            )
    return found


def main() -> None:
    """Read the command line and standard input, measure, print."""
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--run-url", required=True)
    parser.add_argument("--date", required=True)
    args = parser.parse_args()
    try:
        json.dump(rows(json.load(sys.stdin), args.run_url, args.date), sys.stdout)
    except (ValueError, lzma.LZMAError) as error:
        sys.exit(f"bench: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
