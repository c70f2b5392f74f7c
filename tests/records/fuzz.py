"""The two claims of the record reader, under a coverage-guided fuzzer; not part of the test run.

    pip install atheris
    python -m tests.records.fuzz -max_total_time=600 -max_len=400 [CORPUS]

1. A line is decoded exactly as the plain statement of the rules says (``test_codec.reference``): the same value to the last
   kind, or refused by both. 2. Any cut of the same bytes gives the same records, names, counts, or the same error.
"""

from __future__ import annotations

import json
import sys

import atheris

with atheris.instrument_imports(include=["klaud.records"]):
    from klaud.records import codec
    from tests.records.test_codec import reference
    from tests.records.test_reader import seen


def one(data: bytes) -> None:
    """Try one input: its first byte says which claim, and how the rest is cut."""
    how, data = data[:1], data[1:]
    if not how or not data:
        return
    if how[0] % 2:
        value, stated = codec.decode(data), reference(data)
        if isinstance(value, codec.Refused):
            assert stated is None, data
            assert value in codec.MEANING
        else:  # as texts: that tells 1 from 1.0 and from True, and sees the order of names
            assert json.dumps(value) == json.dumps(stated), data
    else:
        options = {"invalid": ("fail", "skip")[how[0] >> 1 & 1], "tail": ("line", "torn")[how[0] >> 2 & 1]}
        size = (how[0] >> 3) + 1
        assert seen(data, size, **options) == seen(data, 1, **options), (data, size, options)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
