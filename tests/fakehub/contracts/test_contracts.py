"""Every numbered contract, on the embedded GitHub; with ``--live`` on the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from klaud.github.conformance import model, run

if TYPE_CHECKING:
    from klaud.github.conformance.target import Target


@pytest.mark.parametrize("contract", run.CONTRACTS, ids=lambda one: f"{one.name}: {one.claim}")
def test_the_host_keeps(contract: model.Contract, target: Target) -> None:
    try:
        contract.do(target)
    except model.NotHereError as why:
        pytest.skip(str(why))


def test_numbers_are_given_once_and_in_order() -> None:
    numbers = [one.number for one in run.CONTRACTS]
    assert numbers == sorted(set(numbers))


def test_what_a_host_does_not_keep_is_said_and_bounded() -> None:
    with pytest.raises(model.BrokenError, match=r"^the branch is gone$"):
        model.holds([], "the branch is gone")
    with pytest.raises(model.BrokenError, match=r"^number: 1 where 2 was promised$"):
        model.same(1, 2, "number")
    with pytest.raises(model.BrokenError) as caught:
        model.holds(None, "x" * 10_000)
    assert len(str(caught.value)) == model.WHY_CHARS
