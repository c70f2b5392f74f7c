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
