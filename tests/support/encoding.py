"""What the encoder's tests share: the example's data, its agent as a function, and agents that run in process."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from klaud import clock
from klaud.encoder import agents, model, naming, reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

EXAMPLE = Path(__file__).parents[2] / "examples" / "knowledge-bench"
AGENT = EXAMPLE / "agent.py"

Answer = "Callable[[dict[str, Any], Path], dict[str, Any] | None]"


def load(name: str) -> ModuleType:
    """Import one script of the example."""
    module_name = f"klaud_example_{name}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


class InstantAgent:
    """An agent in process: a function from the task to the submission. ``runs`` counts its attempts by item."""

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
        *,
        ended: Callable[[model.Task], model.Ended] = lambda _: "finished",
        usage: model.Usage | None = None,
    ) -> None:
        self.answer = answer or load("agent").good
        self.ended = ended
        self.usage = usage or model.Usage(input_tokens=100, output_tokens=10, dollars=0.01)
        self.runs: dict[int, int] = {}
        self.tasks: list[model.Task] = []

    async def run(self, task: model.Task, workspace: Path, tools: Any, bounds: model.Bounds) -> model.ItemResult:
        del tools, bounds
        self.runs[task.item.id] = self.runs.get(task.item.id, 0) + 1
        self.tasks.append(task)
        told = json.loads((workspace / agents.TASK).read_text())
        said = self.answer(told)
        if said is not None:
            (workspace / agents.SUBMISSION).write_bytes(msgspec.json.encode(said))
        return model.ItemResult(ended=self.ended(task), usage=self.usage)


def request(root: Path, agent: agents.ItemAgent, **more: Any) -> reference.Request:
    """Return a request for the example's database below ``root`` (``data`` and ``refs``)."""
    fixed: dict[str, Any] = {
        "key": naming.key("bench", "shop", "sqlite"),
        "data": root / "data",
        "references": root / "refs",
        "agent": agent,
        "clock": clock.SystemClock(),
        "framework": "scripted",
    }
    return reference.Request(**{**fixed, **more})


def make(root: Path, ids: set[int] | None = None) -> Path:
    """Write the example's data below ``root/data``, with all items or only those; return the database's folder."""
    example = load("make")
    folder: Path = example.make(root / "data")
    if ids is not None:
        path = folder / "shop_kb.jsonl"
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["id"] in ids]
        path.write_text("\n".join(lines) + "\n")
    return folder


def spoilt(fault: str, *, once: bool = False) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Return the example's agent with one mistake in its answers, in the first attempt only where ``once``."""
    agent = load("agent")

    def answer(task: dict[str, Any]) -> dict[str, Any] | None:
        good: dict[str, Any] = agent.good(task)
        if once and task["attempt"] > 1:
            return good
        made: dict[str, Any] | None = agent.spoil(fault, task, good)
        return made

    return answer


def row(entry: model.ReferenceEntry, item: int) -> model.Row:
    """Return the row of one item."""
    return next(one for one in entry.results if one.kb_id == item)
