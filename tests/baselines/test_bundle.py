"""The evidence bundle repeats its verdict from itself alone, and shows when it was touched."""

from __future__ import annotations

import base64
import gzip
import json
import random
from typing import Any

import msgspec
import pytest

from klaud import errors
from klaud.baselines import bundle, model, settings
from tests.support.benchmarks import ENTRIES, FAST, PRODUCER, REPOSITORY, SPLIT, TODAY, Case, row, rows_of


def made(case: Case, family: str = FAST) -> bytes:
    return bundle.make(case.policy, case.decoded(), case.proofs(), case.produced(), family=family, current=case.current)


def both() -> Case:
    case = Case(rows_of(ENTRIES["fast"]) + rows_of(ENTRIES["split"]))
    case.rows.append(row(ENTRIES["fast"][0], 4, run=900, metrics={"tput": 1.0}))
    case.families = [FAST, SPLIT]
    return case


def test_the_verdict_repeats_offline_with_the_same_bytes() -> None:
    case = both()
    data = made(case)
    checked = bundle.check(data)
    assert (checked.problem, checked.digest) == ("", bundle.digest(data))
    assert checked.verdict == case.judge()[FAST]
    assert made(case) == data


@pytest.mark.parametrize("seed", range(10))
def test_any_verdict_repeats_whatever_is_wrong(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a fixed seed
    case = both()
    sibling = {**ENTRIES["fast"][0], "conc": [64]}
    case.matrices[PRODUCER, "c:sibling"] = [sibling]
    case.rows.append(row(sibling, 64))
    for _ in range(6):
        each = dict(chance.choice(case.rows))
        each[chance.choice(["conc", "decode_tp", "model", "image", "run_url"])] = chance.choice(
            [4, 8, "m1", f"https://github.com/{REPOSITORY}/actions/runs/{chance.randint(800, 1100)}"]
        )
        case.rows.append(each)
    case.runs["900"] = model.Unproven(run_id=900, why="run 900 is gone")
    case.matrices[TODAY, SPLIT] = model.NotGenerated(
        commit=TODAY, family=SPLIT, code="generator-failed", error="exit status 1"
    )
    chance.shuffle(case.rows)
    verdicts = case.judge()
    for family in (FAST, SPLIT):
        checked = bundle.check(made(case, family))
        assert checked.problem == ""
        assert checked.verdict == verdicts[family]


def test_what_is_of_other_families_is_not_in_it() -> None:
    data = made(both())
    held = bundle.read(data)
    assert len(held.rows) == 4
    assert {each.family for each in unpacked(data)} == {FAST}


def unpacked(data: bytes) -> list[Any]:
    return bundle._matrices(bundle._unpacked(bundle.read(data).matrices))


def test_no_address_and_nobodys_reasons_are_in_it() -> None:
    case = Case(retired=(settings.Retired(family="*", match={"isl": 8192}, reason="words of a person"),))
    case.policy = msgspec.structs.replace(
        case.policy, rows=settings.Rows(feed="https://feeds.example.invalid/rows.json")
    )
    case.rows[0]["note"] = "free text of a publisher"
    text = made(case).decode()
    for word in ("words of a person", "feeds.example", "free text"):
        assert word not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"tput": 104.0', '"tput": 204.0'),
        ('"verdict": "verified"', '"verdict": "deferred"'),
        ('"index": 0', '"index": "0"'),
        ('"date": "2026-03-20"', '"date": "2026-03-21"'),
        ('"how": "ancestor"', '"how": "listed"'),
        ('"reg/team/img:v1"', '"reg/team/img:v2"'),
    ],
)
def test_a_touched_bundle_does_not_repeat(old: str, new: str) -> None:
    data = made(Case())
    touched = data.replace(old.encode(), new.encode(), 1)
    assert touched != data
    assert bundle.digest(touched) != bundle.digest(data)
    try:
        assert bundle.check(touched).problem
    except errors.InputError as error:
        assert "no evidence bundle" in str(error)  # noqa: PT017 - either answer is a refusal


def test_no_byte_of_a_bundle_can_be_changed_unnoticed() -> None:
    """Whichever byte: it is no bundle any more, or the verdict or the bytes do not repeat."""
    data = made(both())
    chance = random.Random(3)  # noqa: S311 - a fixed seed
    places = sorted({*range(0, len(data), len(data) // 120), *(chance.randrange(len(data)) for _ in range(60))})
    for at in places:
        for new in (data[at] ^ 1, data[at] ^ 0x20, ord("0")):
            touched = data[:at] + bytes([new]) + data[at + 1 :]
            if touched != data:
                assert refused(touched), (at, data[max(at - 40, 0) : at + 40])
    assert refused(data[:-1])
    assert refused(data + b"\n")


def refused(data: bytes) -> bool:
    try:
        return bool(bundle.check(data).problem)
    except errors.InputError:
        return True


def test_a_bundle_repeats_where_another_zlib_packs_otherwise() -> None:
    held = bundle.read(made(Case()))
    packed = base64.b64encode(gzip.compress(bundle._unpacked(held.matrices), 1, mtime=0)).decode()
    assert packed != held.matrices
    other = msgspec.structs.replace(held, matrices=packed)
    assert bundle.check(bundle._encode(bundle._sealed(other))).problem == ""
    assert bundle.check(bundle._encode(other)).problem.startswith("the verdict repeats, and the bytes do not")
    spaced = base64.b64encode(gzip.compress(bundle._unpacked(held.matrices) + b" ")).decode()
    resealed = bundle._sealed(msgspec.structs.replace(held, matrices=spaced))
    assert bundle.check(bundle._encode(resealed)).problem.startswith("the verdict repeats, and the bytes do not")


def test_a_bundle_of_another_version_says_so() -> None:
    data = made(Case()).replace(b'"version": 1', b'"version": 2', 1)
    with pytest.raises(errors.InputError, match="is of version 2, and this klaud reads version 1") as caught:
        bundle.check(data)
    assert "the klaud that made it" in caught.value.advice


def test_another_layout_of_the_same_content_is_noticed() -> None:
    data = made(Case())
    assert bundle.check(json.dumps(json.loads(data)).encode()).problem.startswith("the verdict repeats, and the bytes")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b"{" * 100_000, b'{"kind": "klaud-baseline", "version": 2}']
)
def test_what_is_no_bundle_is_refused_plainly(data: bytes) -> None:
    with pytest.raises(errors.InputError, match="no evidence bundle"):
        bundle.check(data)


def test_a_matrix_bomb_and_garbage_in_a_bundle_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    held = json.loads(made(Case()))
    for matrices in ("???", base64.b64encode(b"no gzip").decode(), base64.b64encode(gzip.compress(b"[[1]]")).decode()):
        with pytest.raises(errors.InputError, match="cannot be judged"):
            bundle.check(json.dumps({**held, "matrices": matrices}).encode())
    monkeypatch.setattr(bundle, "MAX_MATRICES", 10)
    with pytest.raises(errors.InputError, match="unpack to more than"):
        bundle.check(json.dumps(held).encode())


def test_the_points_are_where_finish_reads_them() -> None:
    held = json.loads(made(Case()))
    point = held["verdict"]["points"][0]
    assert point["identity"]["model"] == "m1"
    assert point["metrics"]["tput"] > 100
    assert (point["proven"], point["trusted"], point["commit"]) == ("run", "ancestor", PRODUCER)
