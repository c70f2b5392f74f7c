# ruff: noqa: INP001 - scripts, not a package
"""An agent without a model: it answers each item of the example from a table, well or badly.

    python agent.py [FAULT]

reads ``task.json`` in its working directory and writes ``submission.json``. Without a fault it encodes the example as a
careful agent would. With one it makes that mistake: always, in the first attempt only (``once-...``), at one item
or in one database only (``...@5``, ``...@shop``).
Standard library only; the same task gives the same submission.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def column(host: str, name: str, sql: str, kind: str, **more: str) -> dict[str, Any]:
    """Define a column."""
    return {"kind": "column", "model": host, "name": name, "body": {"sql": sql, "type": kind, **more}}


def measure(host: str, name: str, formula: str) -> dict[str, Any]:
    """Define a measure."""
    return {"kind": "measure", "model": host, "name": name, "body": {"formula": formula}}


TIER = "CASE tier WHEN 'G' THEN 'gold' WHEN 'S' THEN 'silver' WHEN 'B' THEN 'bronze' END"

ENCODINGS: dict[int, list[dict[str, Any]]] = {
    0: [column("lines", "gross_value", "quantity * unit_price", "DOUBLE")],
    1: [column("lines", "line_cost", "quantity * products.unit_cost", "DOUBLE")],
    2: [measure("lines", "gross_revenue", "sum(gross_value)")],
    3: [measure("lines", "gross_margin", "(gross_revenue - sum(line_cost)) / gross_revenue")],
    4: [measure("lines", "average_order_value", "gross_revenue / count_distinct(order_id)")],
    5: [column("orders", "is_paid", "CASE WHEN status = 'paid' THEN 1 ELSE 0 END", "INT")],
    6: [measure("orders", "paid_orders", "sum(is_paid)")],
    7: [column("customers", "tier_name", TIER, "TEXT")],
    12: [measure("orders", "active_customers", "count_distinct(customer_id)")],
    13: [measure("orders", "active_customers", "max(customer_id)")],
    14: [measure("orders", "orders_per_active_customer", "count(*) / active_customers")],
    15: [measure("lines", "returned_units", "sum(returns.quantity)")],
    16: [measure("lines", "return_rate", "returned_units * 1.0 / sum(quantity)")],
    17: [column("orders", "is_gift", "CASE WHEN attributes LIKE '%\"gift\": true%' THEN 1 ELSE 0 END", "INT")],
    18: [
        {
            "kind": "model",
            "model": "category_sales",
            "body": {
                "source_queries": [
                    {
                        "source_model": "lines",
                        "dimensions": ["products.category"],
                        "measures": ["gross_revenue", "returned_units"],
                    }
                ]
            },
        }
    ],
}
VAGUE = {8: "the definition names no rule that a query could follow"}


def reference(database: str, definition: dict[str, Any]) -> str:
    """Return the canonical reference of a definition."""
    parts = [database, definition["model"], definition.get("name", "")]
    return ".".join(part for part in parts if part)


def good(task: dict[str, Any]) -> dict[str, Any]:
    """Return what a careful agent submits."""
    number = task["item"]["id"]
    if number in VAGUE:
        return {"nonce": task["nonce"], "status": "deferred", "notes": VAGUE[number]}
    definitions = ENCODINGS[number]
    entities = [reference(task["database"], definition) for definition in definitions]
    return {"nonce": task["nonce"], "status": "encoded", "definitions": definitions, "entities": entities}


def spoil(fault: str, task: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any] | None:  # noqa: C901, PLR0911, PLR0912 - one branch for each mistake
    """Return the submission with one mistake in it, None where nothing is submitted."""
    entities = list(answer.get("entities", ()))
    definitions = json.loads(json.dumps(answer.get("definitions", [])))
    database = task["database"]
    match fault:
        case "silent":
            return None
        case "stale":
            return {**answer, "nonce": "0" * 32}
        case "torn":
            Path("submission.json").write_bytes(json.dumps(answer).encode()[:-7])
            return None
        case "linked":
            Path("elsewhere.json").write_text(json.dumps(answer), encoding="utf-8")
            Path("submission.json").symlink_to("elsewhere.json")
            return None
        case "no-entities":
            return {**answer, "entities": []}
        case "unnamed":
            return {**answer, "definitions": [*definitions, column("orders", "extra", "id", "INT")]}
        case "missing":
            return {**answer, "entities": [*entities, f"{database}.orders.not_there"]}
        case "other-source":
            return {**answer, "entities": [*entities, "elsewhere.orders.total"]}
        case "not-canonical":
            return {**answer, "entities": [one.removeprefix(f"{database}.") for one in entities]}
        case "schema":
            return {**answer, "entities": [*entities, f"{database}.orders.status"]}
        case "replaces":
            return {**answer, "definitions": [column("orders", "status", "'paid'", "TEXT")]}
        case "ignores":
            spoilt = [{**one, "body": {**one["body"], "formula": "count(*)"}} for one in definitions]
            return {**answer, "definitions": spoilt}
        case "no-formula":
            spoilt = [{**one, "body": {**one["body"], "formula": "sum(nothing_like_it)"}} for one in definitions]
            return {**answer, "definitions": spoilt}
        case "no-column":
            spoilt = [{**one, "body": {**one["body"], "sql": "nothing_like_it * 2"}} for one in definitions]
            return {**answer, "definitions": spoilt}
        case "own-tag":
            spoilt = [{**one, "body": {**one["body"], "meta": {"kb_id": 999}}} for one in definitions]
            return {**answer, "definitions": spoilt}
        case "huge":
            return {**answer, "notes": "x" * 2_000_000}
        case "many":
            more = [column("orders", f"extra_{n}", "id", "INT") for n in range(200)]
            return {**answer, "definitions": more, "entities": [reference(database, one) for one in more]}
        case "no-reason":
            return {"nonce": task["nonce"], "status": "deferred"}
        case _:
            raise SystemExit(f"no such fault: {fault}")


def main() -> None:
    """Make one attempt."""
    task = json.loads(Path("task.json").read_text(encoding="utf-8"))
    fault = sys.argv[1] if len(sys.argv) > 1 else ""
    if fault.startswith("once-"):
        fault = fault.removeprefix("once-") if task["attempt"] == 1 else ""
    if "@" in fault:  # at one item only, or in one database
        fault, _, where = fault.partition("@")
        fault = fault if where in {str(task["item"]["id"]), task["database"]} else ""
    answer = good(task)
    if fault in ("hang", "hang-after", "crash", "child"):
        if fault != "hang":
            Path("submission.json").write_text(json.dumps(answer), encoding="utf-8")
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "child":
            subprocess.Popen([sys.executable, "-S", __file__, "late"], start_new_session=True)
            return
        time.sleep(600)  # the fault: it hangs
    if fault == "late":
        time.sleep(1)  # the fault: it writes after its parent has ended
        Path("submission.json").write_text("{}", encoding="utf-8")
        return
    spoilt = spoil(fault, task, answer) if fault else answer
    if spoilt is not None:
        Path("submission.json").write_text(json.dumps(spoilt), encoding="utf-8")


if __name__ == "__main__":
    main()
