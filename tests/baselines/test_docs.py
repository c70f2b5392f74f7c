"""The page on baselines lists every reason, and only those."""

from __future__ import annotations

import pathlib
import re
from typing import get_args

from klaud.baselines import model


def test_every_reason_is_explained() -> None:
    text = (pathlib.Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z-]+)` \| [a-z]", text, re.MULTILINE)
    reasons = text[text.index("## Reasons") : text.index("## The sandbox")]
    assert tuple(code for code in named if f"| `{code}` |" in reasons) == get_args(model.ReasonCode)
