"""Fill the README's generated parts: the table of verbs from the commands' own help.

``python tools/readme.py`` writes them; with ``--check`` it only tells whether they are current (status 1 if not).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def verbs() -> str:
    """Return the table of verbs, one line each, in the order of ``klaud --help``."""
    sys.path.insert(0, str(ROOT))
    import typer.main  # noqa: PLC0415 - after the path

    from klaud.cli import main  # noqa: PLC0415 - after the path

    root = typer.main.get_command(main.app)
    context = typer.Context(root)
    lines = ["| verb | what it does |", "| --- | --- |"]
    for name in root.list_commands(context):  # type: ignore[attr-defined]
        command = root.get_command(context, name)  # type: ignore[attr-defined]
        text = " ".join((command.help or "").split("\n\n")[0].split())
        lines.append(f"| `klaud {name}` | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """Return the README with its generated parts made anew."""
    return re.sub(
        r"<!-- verbs:begin -->\n.*?<!-- verbs:end -->",
        lambda _: f"<!-- verbs:begin -->\n{verbs()}\n<!-- verbs:end -->",
        text,
        flags=re.DOTALL,
    )


def main() -> int:
    """Write or check."""
    old = README.read_text(encoding="utf-8")
    new = filled(old)
    if "--check" in sys.argv:
        return int(old != new)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
