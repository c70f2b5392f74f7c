"""Writes the reference part of a document: ``python -m klaud.fakehub.scene_doc docs/scenes.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from klaud.fakehub.faults import KINDS
from klaud.fakehub.scene_schema import Section, kind_word, sections

BEGIN = "<!-- reference: written by python -m klaud.fakehub.scene_doc -->"
END = "<!-- end of the reference -->"


def reference() -> str:
    """Return the reference: every section with every key, then the kinds of faults."""
    parts = [_section(section) for section in sections()]
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in KINDS.items())
    parts.append(f"### kinds of faults\n\n| kind | what it does |\n| --- | --- |\n{rows}\n")
    return "\n".join(parts)


def _section(section: Section) -> str:
    rows = []
    for name, key in section.keys.items():
        notes = (" **required**" if key.required else "") + (" may be null" if key.null else "")
        text = key.doc
        if isinstance(key.kind, tuple) and len(key.kind) > 6 and name != "kind":
            text += ": " + ", ".join(f"`{word}`" for word in key.kind)
        rows.append(f"| `{name}` | {kind_word(key.kind)}{notes} | {text.replace('|', chr(92) + '|')} |")
    table = "\n".join(rows)
    return f"### {section.name}\n\n{section.doc}\n\n| key | value | meaning |\n| --- | --- | --- |\n{table}\n"


def written(document: str) -> str:
    """Return a document with its reference part as it is to be."""
    head, begin, rest = document.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        message = "the document has no place for the reference"
        raise ValueError(message)
    return f"{head}{BEGIN}\n\n{reference()}\n{END}{tail}"


def main() -> None:
    """Rewrite the file named on the command line."""
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text()))


if __name__ == "__main__":
    main()
