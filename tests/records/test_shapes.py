"""Addresses, and both providers' objects, where they are not what they should be."""

from __future__ import annotations

from typing import Any

import pytest

from klaud.records import address, anthropic, call, model, openai, values

SHAPES: dict[str, Any] = {
    "anthropic": anthropic.Shape("https://example.invalid/", "k"),
    "openai": openai.Shape("https://example.invalid/v1/", "k"),
}


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://example.invalid/a?b=c", True),
        ("http://127.0.0.1:80/", True),
        ("http://127.9.9.9/", True),
        ("http://[::1]:8080/", True),
        ("http://localhost/", True),
        ("http://192.0.2.1/", False),
        ("http://localhost.example.invalid/", False),
        ("https://example.invalid/" + "x" * address.ADDRESS_CHARACTERS, False),
        ("https://[::1/", False),
        ("https://example.invalid:port/", False),
        ("https://example.invalid:99999/", False),
        ("https://example.invalid/\u00e9", False),
        ("https://example.invalid\\@other/", False),
        (b"https://example.invalid/", False),
        (None, False),
    ],
)
def test_addresses(url: Any, fine: bool) -> None:
    assert (address.why_refused(url) is None) is fine


def test_unfit_objects_are_no_batch() -> None:
    results = "https://other.invalid/v1/messages/batches/b/results"
    good: dict[str, dict[str, Any]] = {
        "anthropic": {"id": "b", "processing_status": "ended", "results_url": results},
        "openai": {"id": "b", "status": "completed", "output_file_id": "f", "error_file_id": None},
    }
    for name, shape in SHAPES.items():
        assert shape.batch(good[name]).files
        assert shape.batch({**good[name], "request_counts": [1]}).total is None
        for field in ("results_url", "output_file_id"):
            if field in good[name]:
                for value in (3, "", "https://[/", "a/b"):
                    assert shape.batch({**good[name], field: value}) is None
        assert "k" not in repr(shape).split()


def test_answers_of_unfit_records() -> None:
    for shape in SHAPES.values():
        for record in ({}, {"custom_id": 3}):
            assert shape.answer(record) is None
        assert shape.answer({"custom_id": "c"}) == model.Answer(custom_id="c", text=None)
    message: dict[str, Any] = {
        "content": [{"type": "text", "text": "a"}, {"type": "other"}, 3, {"type": "text", "text": "b"}]
    }
    record = {"custom_id": "c", "result": {"type": "succeeded", "message": message}}
    assert SHAPES["anthropic"].answer(record).text == "ab"
    for content in ([], [{"type": "text", "text": 3}], "text", None):
        message["content"] = content
        assert SHAPES["anthropic"].answer(record).text is None


def test_an_upload_without_an_id_creates_nothing() -> None:
    ask = model.Ask(custom_id="c", model="m", system="s", prompt="p", max_tokens=1)
    making = SHAPES["openai"].creating([ask])
    upload = next(making)
    assert isinstance(upload.body, call.Form)
    with pytest.raises(StopIteration) as done:
        making.send({"id": None})
    assert done.value.value == {}


def test_paths_into_nested_data() -> None:
    data = {"a": [{"b": 1}]}
    assert values.path(data, "a", 0, "b") == 1
    for steps in (("a", 1), ("a", "b"), ("x",), (0,), ("a", 0, "b", "c")):
        assert values.path(data, *steps) is None
