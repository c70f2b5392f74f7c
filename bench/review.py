"""A large review by message batch, killed half-way by SIGKILL and resumed, on a loopback provider of either shape.

    python bench/review.py

200 candidates against 500 open pull requests: the rules decide 40, and one batch is asked about 160. Printed: what each
process took from the stream, what the provider was asked, and the decisions by reason.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support import batches, loopback, review_world


def play(shape: str) -> int:
    """Kill one review, resume it, ask again; return how many decisions are not those that were expected."""
    with tempfile.TemporaryDirectory(prefix="klaud-review-") as name, loopback.serving() as host:
        folder = Path(name)
        provider = batches.Provider(host, shape)
        provider.says = review_world.says
        print(
            f"{shape}: {len(review_world.candidates())} candidates, {len(review_world.pulls().pulls)} open pull requests"
        )
        review_world.kill_half_way(provider, folder)
        written, known = (folder / "review.json").exists(), review_world.checkpointed(folder)
        print(f"  killed (SIGKILL) with {known} answers behind the checkpoint, review.json: {written}")
        begun, cpu = time.monotonic(), time.process_time()
        result, delivered = review_world.review(shape, provider.base_url, folder)
        begun, cpu = time.monotonic() - begun, time.process_time() - cpu
        print(f"  resumed: {delivered} records taken, the rest was known; {begun:.1f} s, {cpu:.1f} s CPU")
        asked = len(host.asked)
        again, delivered = review_world.review(shape, provider.base_url, folder)
        print(f"  again: {delivered} records, {len(host.asked) - asked} requests, same decisions: {again == result}")
        gets = host.gets(review_world.results_path(provider))
        print(f"  batches created: {len(provider.batches)}; GETs of its results: {gets} (one by each process)")
        wrong = sum(
            (decision.verdict, decision.reason) != review_world.EXPECTED[index % 10]
            for index, decision in enumerate(result.decisions)
        )
        print(f"  decisions: {dict(result.counts)}; not as expected: {wrong}")
        return wrong


def main() -> int:
    """Play both shapes."""
    return sum(play(shape) for shape in ("anthropic", "openai"))


if __name__ == "__main__":
    sys.exit(main())
