"""Throughput and peak memory of JSONL readers, side by side in one run, over a real loopback HTTP response.

    python bench/streams.py [--megabytes 64] [--repeat 3] [--memory-gib 1] [--readers klaud,anthropic]

Every reader runs in a process of its own, so that its peak memory is its own; a server process writes the same bytes to
each. Reported: megabytes a second of the reader's *CPU time* (median of the repeats, interleaved), and its peak resident
size above what the process had before the first byte. A reader that is quadratic in the line length is given less data
(a rate can be compared), and one that does not finish in ``--patience`` seconds says so.

Lines: ``1k`` and ``10k`` are results of a message batch of that size; ``mix`` is 10 KiB lines with one of 4 MiB among
each 2 MiB; ``blank`` is a flood of empty lines. One-byte chunks are fed without HTTP: a socket does not do that.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import io
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 64 * 1024
MANY = 10**9
FLOOR = "floor (read, split)"


# -- what is read


def record(index: int, size: int) -> bytes:
    """Return one result of a message batch: mostly text with some escapes, and some small values."""
    content = {"type": "text", "text": ""}
    body = {
        "custom_id": f"request-{index:08d}",
        "result": {
            "type": "succeeded",
            "message": {
                "id": f"msg_{index:024d}",
                "type": "message",
                "role": "assistant",
                "model": "a-model",
                "content": [content],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 1200 + index % 90, "output_tokens": 310, "cost": 0.0123},
            },
        },
    }
    sentence = 'Level 3 is faster; see "configs/codecs.yaml".\nRun 1764 took 12.5 s. '
    room = max(size - len(json.dumps(body)) - 1, 0)
    repeats = room // (len(json.dumps(sentence)) - 2)
    content["text"] = sentence * repeats
    return json.dumps(body).encode() + b"\n"


def block(kind: str) -> bytes:
    """Return a block of whole lines that is sent again and again."""
    if kind == "1k":
        return b"".join(record(index, 1024) for index in range(1024))
    if kind == "10k":
        return b"".join(record(index, 10 * 1024) for index in range(128))
    if kind == "mix":
        small = [record(index, 10 * 1024) for index in range(200)]
        return b"".join([*small[:100], record(0, 4 * 1024 * 1024), *small[100:]])
    return (b"\n" * 1023 + b"{}\n") * 1024


def serve(kind: str, size: int, ready: Any) -> None:
    """Answer each connection with the same body, until killed."""
    one = block(kind)
    count = max(size // len(one), 1)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {count * len(one)}\r\nConnection: close\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        ready.send((server.getsockname()[1], count * len(one)))
        while True:
            connection, _ = server.accept()
            try:
                with connection:
                    asked = connection.recv(65536).split(b" ")[1]
                    if not asked.endswith((b"/content", b"/results")):
                        connection.sendall(_status(server.getsockname()[1]))
                        continue
                    connection.sendall(head.encode())
                    for _ in range(count):
                        connection.sendall(one)
            except OSError:
                continue


def _status(port: int) -> bytes:
    """Answer as for an ended message batch, which one package asks about before it reads."""
    said = {
        "id": "b",
        "processing_status": "ended",
        "results_url": f"http://127.0.0.1:{port}/v1/messages/batches/b/results",
    }
    body = json.dumps(said).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


# -- who reads: each takes an address and returns the number of records. Each imports what it needs when it runs, so that
# its process holds nothing of the others.


def _get(url: str) -> Any:
    import requests  # noqa: PLC0415 - see above

    return requests.get(url, stream=True, timeout=60, headers={"Accept-Encoding": "identity"})


def floor(url: str) -> int:
    """Read and split only: what no reader can beat."""
    lines = 0
    fragments: list[bytes] = []
    with _get(url) as response:
        while chunk := response.raw.read1(CHUNK):
            parts = chunk.split(b"\n")
            rest = parts.pop()
            if parts:
                parts[0] = b"".join((*fragments, parts[0]))
                fragments.clear()
                lines += len(parts)
            fragments.append(rest)
    return lines


class Klaud:
    """What the readers that use klaud need of it."""

    def __init__(self, url: str) -> None:
        from klaud.clock import SystemClock  # noqa: PLC0415 - see above
        from klaud.records import acquire, call, limits, response  # noqa: PLC0415 - see above

        self.bounds = limits.Limits(line_bytes=8 * 1024 * 1024, file_bytes=MANY * 1024, lines=MANY, records=MANY)
        self.session = acquire.new_session()
        self.response = response.Response(self.session, call.Call(url), SystemClock(), self.bounds)


def klaud(url: str, *, checkpoints: bool = False) -> int:
    """klaud, all rules on: response owner, framer, strict decoder, one envelope a record."""
    from klaud.records import model, stream  # noqa: PLC0415 - see above

    made = Klaud(url)
    batch = model.Batch(id="b", status="completed", files=(model.BatchFile(kind="result", id="f"),))
    count = 0
    with stream.BatchRecords(batch, lambda _file: made.response, made.bounds, checkpoints=checkpoints) as records:
        for _ in records:
            count += 1
    made.session.close()
    return count


def klaud_checkpoints(url: str) -> int:
    """Klaud with a running SHA-256, as a resumable reader has it."""
    return klaud(url, checkpoints=True)


def klaud_split(url: str) -> int:
    """Klaud's framer alone: the limits without the decoder."""
    from klaud.records import reader  # noqa: PLC0415 - see above

    made = Klaud(url)
    with made.response as opened:
        count = sum(1 for _ in reader.read_lines(opened, made.bounds))
    made.session.close()
    return count


def decoded(url: str, decode: Callable[[bytes], Any]) -> int:
    """Decode klaud's lines and ask nothing of them: what a decoder alone costs, so what no strict reader can beat."""
    from klaud.records import reader  # noqa: PLC0415 - see above

    made = Klaud(url)
    with made.response as opened:
        count = sum(decode(line) is not None for line in reader.read_lines(opened, made.bounds))
    made.session.close()
    return count


def only_msgspec(url: str) -> int:
    """Use msgspec: the last of two equal names wins."""
    import msgspec  # noqa: PLC0415 - see above

    return decoded(url, msgspec.json.Decoder().decode)


def only_jiter(url: str) -> int:
    """Use jiter as klaud does, without the refusal of a name twice."""
    import jiter  # noqa: PLC0415 - see above

    return decoded(url, functools.partial(jiter.from_json, allow_inf_nan=False, cache_mode="keys"))


def only_orjson(url: str) -> int:
    """Use orjson: the last of two equal names wins, and a long integer becomes a float."""
    import orjson  # noqa: PLC0415 - see above

    return decoded(url, orjson.loads)


def strict_json(url: str) -> int:
    """json.loads with strict hooks on klaud's split: nearly the same promises from the standard library."""
    from klaud.records import reader  # noqa: PLC0415 - see above

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            raise ValueError("a name twice")
        return found

    def constant(_text: str) -> float:
        raise ValueError("not finite")

    def number(text: str) -> float:
        value = float(text)
        if value in {float("inf"), float("-inf")}:
            raise ValueError("not finite")
        return value

    made = Klaud(url)
    count = 0
    with made.response as opened:
        for line in reader.read_lines(opened, made.bounds):
            json.loads(line.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant, parse_float=number)
            count += 1
    made.session.close()
    return count


def iter_lines_json(url: str) -> int:
    """Let requests cut lines, 64 KiB at a time, and decode each with json.loads."""
    count = 0
    with _get(url) as response:
        for line in response.iter_lines(chunk_size=CHUNK):
            if line:
                json.loads(line)
                count += 1
    return count


def jsonlines_reader(url: str) -> int:
    """Use the jsonlines package on a buffered reader."""
    import jsonlines  # noqa: PLC0415 - see above

    with _get(url) as response:
        response.raw.auto_close = False
        with io.BufferedReader(response.raw, CHUNK) as file, jsonlines.Reader(file) as reader:
            return sum(1 for _ in reader.iter(skip_empty=True))


def anthropic_reader(url: str) -> int:
    """Use the anthropic package as it documents: its own stream of a batch's results."""
    import anthropic  # noqa: PLC0415 - see above

    with anthropic.Anthropic(api_key="none", base_url=url.partition("/files/")[0]) as client:
        return sum(1 for _ in client.messages.batches.results("b"))


def openai_reader(url: str) -> int:
    """Use the openai package as it documents: a file's content is one text, which is then split and decoded."""
    import openai  # noqa: PLC0415 - see above

    client = openai.OpenAI(api_key="none", base_url=url.partition("/files/")[0])
    text = client.files.content("x").text
    return sum(1 for line in text.split("\n") if line and json.loads(line) is not None)


READERS: dict[str, Callable[[str], int]] = {
    FLOOR: floor,
    "klaud framer only": klaud_split,
    "klaud": klaud,
    "klaud + checkpoints": klaud_checkpoints,
    "no rules: msgspec": only_msgspec,
    "no rules: jiter": only_jiter,
    "no rules: orjson": only_orjson,
    "json, strict hooks": strict_json,
    "iter_lines + json": iter_lines_json,
    "jsonlines": jsonlines_reader,
    "anthropic": anthropic_reader,
    "openai": openai_reader,
}
NEEDS = {"no rules: orjson": "orjson", "jsonlines": "jsonlines", "anthropic": "anthropic", "openai": "openai"}
SLOW = {("anthropic", "mix"), *((name, "blank") for name in READERS)}
"""Where a reader is so slow, or a body has so many lines, that it is measured on less data."""
AIMS = (("1k", "anthropic", 8.0), ("1k", "openai", 3.0), ("1k", "json, strict hooks", 1.0), ("mix", "anthropic", 20.0))
FLAT = 32 * 2**20


# -- measuring


def high_water(*, reset: bool = False) -> int:
    """Return this process's peak resident size in bytes, after making it what is resident now where ``reset``."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def measure(name: str, warm_url: str, url: str, answer: Any) -> None:
    """Run one reader in this process: imports and a warm-up first, then the measured body."""
    try:
        READERS[name](warm_url)
        before = high_water(reset=True)
        started = time.process_time()
        records = READERS[name](url)
        cpu = time.process_time() - started
        answer.send((records, cpu, high_water() - before))
    except Exception as error:  # noqa: BLE001 - the table says that it failed
        answer.send(f"{type(error).__name__}: {error}"[:80])


class Servers:
    """One server process for each kind and size of body."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.processes: list[Any] = []
        self.made: dict[tuple[str, int], tuple[str, int]] = {}

    def url(self, kind: str, size: int) -> tuple[str, int]:
        """Return the address of such a body, and its true size."""
        if (kind, size) not in self.made:
            mine, theirs = self.context.Pipe()
            process = self.context.Process(target=serve, args=(kind, size, theirs), daemon=True)
            process.start()
            self.processes.append(process)
            port, true_size = mine.recv()
            self.made[kind, size] = (f"http://127.0.0.1:{port}/files/x/content", true_size)
        return self.made[kind, size]

    def run(self, name: str, kind: str, size: int, patience: float) -> tuple[int, float, int] | str:
        """Measure one reader once: (records, CPU seconds, bytes above the start); a text says why there is no figure."""
        url, warm = self.url(kind, size)[0], self.url("1k", 1)[0]
        mine, theirs = self.context.Pipe()
        process = self.context.Process(target=measure, args=(name, warm, url, theirs))
        process.start()
        theirs.close()
        found: Any = f"not finished in {patience:.0f} s"
        try:
            if mine.poll(patience):
                found = mine.recv()
        except EOFError:
            found = "the reader's process died"
        process.kill()
        process.join()
        return found  # type: ignore[no-any-return]  # one of the two, by ``measure``

    def close(self) -> None:
        """End the servers."""
        for process in self.processes:
            process.kill()
            process.join()


def missing(name: str) -> str:
    """Return why a reader cannot run here, or an empty text."""
    package = NEEDS.get(name)
    return (
        f"skipped: the package {package} is not installed" if package and not importlib.util.find_spec(package) else ""
    )


def one_kind(servers: Servers, kind: str, names: list[str], options: argparse.Namespace) -> dict[str, float]:
    """Measure and print one kind of lines; return MB/s by reader."""
    sizes = {name: int((options.slow_megabytes if (name, kind) in SLOW else options.megabytes) * 1e6) for name in names}
    runs: dict[str, list[Any]] = {name: [missing(name)] if missing(name) else [] for name in names}
    for _ in range(options.repeat):
        for name in names:
            if not any(isinstance(run, str) for run in runs[name]):
                runs[name].append(servers.run(name, kind, sizes[name], options.patience))
    rates = {}
    print(f"\n{kind:26} MB/s  peak MiB")
    for name, found in runs.items():
        if isinstance(found[-1], str):
            print(f"  {name:20} {found[-1]}")
            continue
        size = servers.url(kind, sizes[name])[1]
        rates[name] = statistics.median(size / run[1] / 1e6 for run in found)
        note = "  (less data)" if (name, kind) in SLOW else ""
        print(f"  {name:20} {rates[name]:8.1f} {max(run[2] for run in found) / 2**20:9.1f}{note}")
    return rates


def summary(rates: dict[str, dict[str, float]]) -> None:
    """Print what was aimed at and how far the floor is."""
    print()
    for kind, other, aim in AIMS:
        if "klaud" in rates.get(kind, {}) and other in rates[kind]:
            ratio = rates[kind]["klaud"] / rates[kind][other]
            print(f"{kind}: klaud is {ratio:.1f} times {other} (aim {aim:g}: {'met' if ratio >= aim else 'MISSED'})")
            free = {name: rate for name, rate in rates[kind].items() if name.startswith("no rules")}
            if ratio < aim and free:
                best = max(free, key=lambda name: free[name])
                print(
                    f"    a decoder with no rules at all ({best}) is {free[best] / rates[kind][other]:.1f} times {other}"
                )
    for kind, found in rates.items():
        if "klaud" in found and FLOOR in found:
            print(f"{kind}: klaud has {found['klaud'] / found[FLOOR]:.2f} of the floor's rate")


def memory(servers: Servers, gib: float) -> None:
    """Print the peak of one long stream."""
    found = servers.run("klaud", "1k", int(gib * 2**30), 900)
    if isinstance(found, str):
        print(f"memory: {found}")
        return
    verdict = "flat" if found[2] <= FLAT else "NOT FLAT"
    print(
        f"memory: {gib:g} GiB of 1 KiB lines, {found[0]} records: {found[2] / 2**20:.1f} MiB above the start ({verdict})"
    )


def one_byte_chunks() -> None:
    """Feed 1 MB one byte at a time: what a decompressor or a pipe may do at its worst."""
    from klaud.records import limits, reader  # noqa: PLC0415 - see above

    data = block("1k")[:1_000_000]
    data = data[: data.rindex(b"\n") + 1]
    records = reader.RecordReader(limits.Limits(lines=MANY, records=MANY))
    started = time.process_time()
    count = 0
    for at in range(len(data)):
        for _ in records.feed(data[at : at + 1]):
            count += 1
    cpu = time.process_time() - started
    assert count == data.count(b"\n")
    print(f"one-byte chunks: {len(data) / cpu / 1e6:.2f} MB/s, {cpu / len(data) * 1e6:.2f} us a byte, {count} records")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--slow-megabytes", type=float, default=9)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--patience", type=float, default=400, help="seconds a reader may take for one body")
    parser.add_argument("--memory-gib", type=float, default=1.0, help="size of the memory run; 0 leaves it out")
    parser.add_argument("--readers", default="", help="names, comma separated; all by default")
    parser.add_argument("--kinds", default="1k,10k,mix,blank")
    options = parser.parse_args()
    names = [name for name in READERS if not options.readers or name in options.readers.split(",")]
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores; CPU time, median of {options.repeat}, interleaved")
    servers = Servers()
    try:
        summary({kind: one_kind(servers, kind, names, options) for kind in options.kinds.split(",")})
        if options.memory_gib:
            memory(servers, options.memory_gib)
        one_byte_chunks()
    finally:
        servers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
