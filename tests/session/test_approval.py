"""Files that run: nothing is dispatched on them until a person has set the label, after the head that it is about."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud.leases import model as leases
from klaud.session import model, rules_ledger, rules_touch, run
from tests.support import session_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LABEL = "klaud-approved"
AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
WRITE = {"do": "write", "file": "tools/run.py", "text": "print('faster')\n"}
COMMIT = {"do": "commit"}


def calls(*tools: str) -> list[dict[str, Any]]:
    return [{"do": "call", "tool": tool} for tool in tools]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[session_bench.Bench]:
    tmp_path.chmod(0o755)
    with session_bench.bench(tmp_path) as made:
        made.scope = model.EditScope(files=("tools/**",), allow_executable=True)
        made.workflows = msgspec.structs.replace(made.workflows, approval_label=LABEL)
        real = made.host
        who = rules_touch.Who(bot=90001, approvals=(LABEL,))

        def host(run_id: int = 7002) -> run.Host:
            found = real(run_id)
            return dataclasses.replace(
                found,
                target=dataclasses.replace(found.target, who=who),
                settling=dataclasses.replace(found.settling, who=who),
            )

        made.host = host  # type: ignore[method-assign]

        def dispatch(workflow: str, ref: str, inputs: dict[str, str]) -> int:
            head = made.world.state.refs[f"refs/heads/{ref}"]
            title = inputs.get("marker", "")
            number = made.world.add_run(workflow, actor=made.world.bot, head=head, branch=ref, title=title)
            made.world.finish_run(number, "success")
            return number

        made.world.on_dispatch = dispatch
        yield made


def begin(bench: session_bench.Bench, *more: dict[str, Any]) -> run.SessionEnd:
    bench.script({"steps": [WRITE, COMMIT, *calls("push_work", "open_draft"), *more]})
    return bench.run(bench.brief(bench.claim()))


def go_on(bench: session_bench.Bench, *steps: dict[str, Any], run_id: int = 7003) -> run.SessionEnd:
    bench.script({"steps": list(steps), "continued": list(steps)})
    held = bench.lease_store(bench.refs_store()).look(bench.names.claim(bench.candidate.partition("-")[0]))
    assert isinstance(held, leases.Held)
    return bench.run(bench.brief(held.oid), run_id=run_id)


def test_a_session_waits_for_the_label_and_goes_on_with_it(bench: session_bench.Bench) -> None:
    end = begin(bench, *calls("dispatch_smoke"))
    assert isinstance(end, run.Parked), (end, bench.log)
    view = bench.view()
    assert view.executable
    assert view.spent.smoke_runs == 0
    assert view.number is not None
    assert any("needs-approval" in line for line in bench.log)
    bench.world.label(view.number, LABEL, by=bench.world.alice)
    end = go_on(bench, *calls("dispatch_smoke"))
    assert bench.view().spent.smoke_runs == 1, (end, bench.log)
    assert bench.world.state.pulls[view.number].open, "an approval is no touch"


def test_only_who_may_write_approves(bench: session_bench.Bench) -> None:
    """A label by the triage role is said not to count, and starts nothing; each wait is a park of its own kind."""
    end = begin(bench, *calls("dispatch_smoke"))
    assert isinstance(end, run.Parked), (end, bench.log)
    assert end.why == "approval"
    number = bench.view().number
    assert number is not None
    pull = bench.world.state.pulls[number]
    assert f"<b>{LABEL}</b>" in pull.body, "the draft says what is asked for"
    bench.world.label(number, LABEL, by=bench.world.mallory)
    end = go_on(bench, *calls("dispatch_smoke"))
    assert isinstance(end, run.Parked), (end, bench.log)
    assert (end.why, bench.view().spent.smoke_runs) == ("approval", 0)
    assert any("account 666, which may not write here" in line for line in bench.log)


def test_a_later_push_needs_a_new_approval(bench: session_bench.Bench) -> None:
    begin(bench, *calls("dispatch_smoke"))
    number = bench.view().number
    assert number is not None
    bench.world.label(number, LABEL, by=bench.world.alice)
    other = {"do": "write", "file": "tools/run.py", "text": "print('something else')\n"}
    end = go_on(bench, other, COMMIT, *calls("push_work", "dispatch_smoke"))
    assert isinstance(end, run.Parked), (end, bench.log)
    assert bench.view().spent.smoke_runs == 0
    assert LABEL not in bench.world.state.pulls[number].labels, "it was taken off"
    bench.world.label(number, LABEL, by=bench.world.alice)
    go_on(bench, *calls("dispatch_smoke"), run_id=7004)
    assert bench.view().spent.smoke_runs == 1, bench.log


def test_without_a_label_in_the_configuration_nobody_can_approve(bench: session_bench.Bench) -> None:
    bench.workflows = msgspec.structs.replace(bench.workflows, approval_label="")
    end = begin(bench, *calls("dispatch_smoke"))
    assert isinstance(end, run.Ended), end
    assert bench.view().spent.smoke_runs == 0


def intent(seq: int, effect: Any, **more: Any) -> leases.Intent:
    return leases.Intent(at=AT, seq=seq, effect=effect, **more)


def effected(seq: int, effect: Any, result: Any = "done") -> leases.Effected:
    return leases.Effected(at=AT, seq=seq, effect=effect, result=result)


PUSH = (intent(0, "push-work"), effected(0, "push-work"))
OPEN = (intent(1, "open-draft"), effected(1, "open-draft"))
AGAIN = (intent(2, "push-work"), effected(2, "push-work"))
OFF = (intent(3, "remove-label", label=LABEL), effected(3, "remove-label"))
FRESH: dict[str, tuple[tuple[leases.LedgerRecord, ...], bool]] = {
    "nothing": ((), False),
    "opened after the push": ((*PUSH, *OPEN), True),
    "pushed again": ((*PUSH, *OPEN, *AGAIN), False),
    "pushed again, the answer was lost": ((*PUSH, *OPEN, AGAIN[0]), False),
    "taken off since": ((*PUSH, *OPEN, *AGAIN, *OFF), True),
    "found off since": ((*PUSH, *OPEN, *AGAIN, OFF[0], effected(3, "remove-label", "found")), True),
    "taking off is unclear": ((*PUSH, *OPEN, *AGAIN, OFF[0], effected(3, "remove-label", "unclear")), False),
    "another label was taken off": (
        (*PUSH, *OPEN, *AGAIN, intent(3, "remove-label", label="x"), effected(3, "remove-label")), False,
    ),
    "pushed after it was taken off": ((*PUSH, *OPEN, *OFF, intent(4, "push-work"), effected(4, "push-work")), False),
}  # fmt: skip


def wrong(rule: Callable[[tuple[leases.LedgerRecord, ...], str], bool]) -> set[str]:
    return {name for name, (records, fresh) in FRESH.items() if rule(records, LABEL) is not fresh}


def test_whether_an_approval_is_about_the_newest_head() -> None:
    assert wrong(rules_ledger.approval_is_fresh) == set()


def test_a_rule_that_forgets_the_push_is_caught() -> None:
    """The broken twin believes every label once the draft is open."""

    def twin(records: tuple[leases.LedgerRecord, ...], label: str) -> bool:
        del label
        return any(isinstance(one, leases.Effected) and one.effect == "open-draft" for one in records)

    assert "pushed again" in wrong(twin)
