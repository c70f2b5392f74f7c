"""What is made from structs is what is committed, and says what the decoders do."""

from __future__ import annotations

from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from tools import schemas

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("path", "text"), sorted(schemas.products().items()))
def test_the_committed_file_is_what_the_structs_say(path: str, text: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == text, "run: python tools/schemas.py"


@pytest.mark.parametrize("path", [path for path in schemas.products() if "schema" in path])
def test_each_schema_is_a_valid_schema_with_every_field_described(path: str) -> None:
    schema = msgspec.json.decode((ROOT / path).read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    for name, one in {"": schema, **schema["$defs"]}.items():
        assert one["description"], name
        assert all(body["description"] for body in one["properties"].values()), name


class Bare(msgspec.Struct):
    """A struct with a field that nobody described."""

    field: int


def test_broken_twin_a_field_without_a_description_is_refused() -> None:
    with pytest.raises(schemas.UndescribedError, match="field"):
        schemas.json_schema(Bare, title="", address="")


def test_a_stale_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout whose files differ from what would be made fails ``--check`` and passes after writing."""
    for path in schemas.products():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(schemas, "ROOT", tmp_path)
    assert schemas.main(["--check"]) == 1
    assert "config_schema.json" in capsys.readouterr().out
    assert schemas.main([]) == 0
    assert schemas.main(["--check"]) == 0
