# ruff: noqa: INP001 - scripts, not a package
"""Make the example: a small shop as an SQLite database, its knowledge base and the meanings of its columns.

    python make.py DIRECTORY

writes ``DIRECTORY/shop/`` with ``shop.sqlite``, ``shop_kb.jsonl`` and ``shop_column_meaning_base.json``: always the same
content. ``SCHEMA`` and ``rows`` serve PostgreSQL too. Standard library only.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

NAME = "shop"

SCHEMA = """
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, tier TEXT NOT NULL, country TEXT NOT NULL, signed_up DATE NOT NULL
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, unit_cost DOUBLE PRECISION NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id), ordered_at DATE NOT NULL,
    status TEXT NOT NULL, attributes TEXT NOT NULL
);
CREATE TABLE lines (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id), quantity INTEGER NOT NULL, unit_price DOUBLE PRECISION NOT NULL
);
CREATE TABLE returns (
    id INTEGER PRIMARY KEY, line_id INTEGER NOT NULL REFERENCES lines (id), quantity INTEGER NOT NULL, reason TEXT NOT NULL
);
"""

TIERS = ("G", "S", "B")
STATUSES = ("paid", "paid", "open", "void")


def rows() -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of every table, parents first; plain arithmetic, so the same everywhere."""
    customers = [
        (n, f"customer {n}", TIERS[n % 3], ("DE", "FR", "PL")[n * 7 % 3], f"2023-{n % 12 + 1:02d}-{n % 28 + 1:02d}")
        for n in range(1, 21)
    ]
    products = [(n, f"product {n}", ("tool", "toy", "book")[n % 3], 1.25 + n * 0.75) for n in range(1, 9)]
    orders = [
        (
            n,
            n * 13 % 20 + 1,
            f"2024-{n % 12 + 1:02d}-{n * 5 % 28 + 1:02d}",
            STATUSES[n * 11 % 4],
            json.dumps({"gift": n % 5 == 0, "channel": ("web", "phone")[n % 2]}),
        )
        for n in range(1, 81)
    ]
    lines = [
        (n, n * 7 % 80 + 1, n * 3 % 8 + 1, n % 4 + 1, 2.5 + (n * 3 % 8 + 1) * 1.25 + n % 3 * 0.5) for n in range(1, 201)
    ]
    returns = [(n, n * 9 % 200 + 1, 1, ("broken", "late", "wrong")[n % 3]) for n in range(1, 25)]
    return {"customers": customers, "products": products, "orders": orders, "lines": lines, "returns": returns}


Entry = tuple[int, str, str, str, str, object]
"""One item: id, knowledge, description, definition, type, children."""


def _item(entry: Entry) -> dict[str, object]:
    names = ("id", "knowledge", "description", "definition", "type", "children_knowledge")
    return dict(zip(names, entry, strict=True))


CALCULATION, DOMAIN, VALUE = "calculation_knowledge", "domain_knowledge", "value_illustration"

ITEMS: list[Entry] = [
    (0, "Gross Line Value", "What one line of an order is worth.", "GLV = quantity * unit_price", CALCULATION, -1),
    (1, "Line Cost", "What one line costs the shop.", "LC = quantity * unit cost of the product", CALCULATION, -1),
    (2, "Gross Revenue", "All lines together.", "GR = SUM(GLV)", CALCULATION, 0),
    (3, "Gross Margin", "The part of revenue that is kept.", "GM = (GR - SUM(LC)) / GR", CALCULATION, [1, 2]),
    (4, "Average Order Value", "Revenue of an order on average.", "AOV = GR / number of orders", CALCULATION, [2]),
    (5, "Paid Order", "An order that was paid.", "status is 'paid'", DOMAIN, -1),
    (6, "Paid Order Count", "How many orders were paid.", "POC = number of paid orders", CALCULATION, [5]),
    (7, "Customer Tier", "What the letters mean.", "G is gold, S is silver, B is bronze", VALUE, -1),
    (8, "Valued Customer", "A customer that matters a lot.", "Those we would miss.", DOMAIN, -1),
    (9, "Loyalty", "How loyal a customer is.", "Loyalty = Affinity * 2", CALCULATION, [10]),
    (10, "Affinity", "How close a customer is.", "Affinity = Loyalty / 2", CALCULATION, [9]),
    (11, "Loyal Share", "The part of loyal customers.", "LS = loyal customers / customers", CALCULATION, [9]),
    (12, "Active Customers", "Customers with an order.", "AC = customers that ordered", CALCULATION, -1),
    (13, "Active Customers (signed up)", "Customers there are.", "AC = customers", CALCULATION, -1),
    (14, "Orders per Active Customer", "Orders for each of them.", "OAC = orders / AC", CALCULATION, [12]),
    (15, "Returned Units", "How many units came back.", "RU = SUM(returned quantity)", CALCULATION, -1),
    (16, "Return Rate", "The part of units that came back.", "RR = RU / sold units", CALCULATION, [15, 99]),
    (17, "Gift Order", "An order that is a gift.", "attributes.gift is true", DOMAIN, -1),
    (18, "Category Sales", "Sales of each product category.", "GR and RU by category", DOMAIN, [2, 15]),
]
"""Nineteen items: formulas on formulas, a vague one (8), a cycle (9, 10) and what hangs on it (11), a collision (12 and 13)
and what uses it (14), an unknown child (99 of 16)."""

MEANINGS: dict[str, object] = {
    "shop|customers|tier": "Letter of the customer's tier",
    "shop|lines|unit_price": "Price of one unit in euros, as sold",
    "shop|products|unit_cost": "What one unit costs the shop, in euros",
    "shop|orders|attributes": {
        "column_meaning": "JSON object with what else is known of an order",
        "fields_meaning": {"gift": "whether it is a gift", "channel": "how it was ordered: web or phone"},
    },
}


def fill(connection: sqlite3.Connection) -> None:
    """Make and fill the tables."""
    connection.executescript(SCHEMA)
    for table, of in rows().items():
        marks = ", ".join("?" * len(of[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", of)  # noqa: S608 - names from above
    connection.commit()


def make(directory: Path, name: str = NAME, ids: set[int] | None = None) -> Path:
    """Write the example's data directory; return the database's folder. ``ids``: with these items only."""
    folder = directory / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    try:
        fill(connection)
    finally:
        connection.close()
    lines = [json.dumps(_item(entry)) for entry in ITEMS if ids is None or entry[0] in ids]
    (folder / f"{name}_kb.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    meanings = {key.replace(NAME, name, 1): value for key, value in MEANINGS.items()}
    (folder / f"{name}_column_meaning_base.json").write_text(json.dumps(meanings, indent=2) + "\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    make(Path(sys.argv[1]))
