"""What a session's ledger says."""

from __future__ import annotations

from klaud.leases import model as leases
from klaud.session import model, rules_ledger
from tests.support.session_records import AT, HOLDER, OID, at, effect, intent, started, turn


def test_the_account_counts_intents_whatever_became_of_them() -> None:
    records = [
        started(),
        intent(0, "push-work", oids=(OID,)), effect(0, "push-work", oid=OID),
        intent(1, "open-draft", digest="d"), effect(1, "open-draft", number=12),
        intent(2, "dispatch-smoke", retry="infrastructure"), effect(2, "dispatch-smoke", "unclear"),
        intent(3, "dispatch-smoke", retry="repair"), effect(3, "dispatch-smoke", run_id=99),
        intent(4, "start-final-run"),
    ]  # fmt: skip
    view = rules_ledger.read(records)
    assert view.spent == model.Spent(
        drafts=1, pushes=1, smoke_runs=2, final_runs=1, repairs=1, infrastructure_retries=1
    )
    assert (view.head, view.number, view.digest, view.smoke_runs, view.next_seq) == (OID, 12, "d", (99,), 5)
    assert [one.seq for one in view.open_intents] == [4]
    assert view.oids == {OID}
    assert rules_ledger.diagnose(records).spent == view.spent


def test_recoverys_intents_are_not_the_sessions_spending() -> None:
    records = [started(), intent(0, "push-work", by="recovery")]
    assert rules_ledger.read(records).spent == model.Spent()


def test_an_index_advances_on_success_only() -> None:
    records: list[leases.LedgerRecord] = [started()]
    for number, status in enumerate(("completed", "failed", "interrupted", "completed")):
        index = rules_ledger.read(records).index
        assert index == (0, 1, 1, 1)[number]
        records += turn(index, status, agent_session="ab", input_tokens=5, cost_microdollars=7)
    view = rules_ledger.read(records)
    assert (view.index, view.turns, view.agent_session, view.cost_microdollars, view.tokens) == (2, 4, "ab", 28, 20)


def test_a_failed_turn_forgets_the_agents_session_not_the_counter() -> None:
    view = rules_ledger.read([started(), *turn(0, agent_session="ab"), *turn(1, "failed", agent_session="cd")])
    assert (view.index, view.agent_session) == (1, "")


def test_the_latest_row_wins() -> None:
    parked = leases.Parked(at=AT, on=(1,), why="smoke-run", tried=(leases.Attempted(what="change"),))
    lost = leases.BeatLost(at=AT, why="paused")
    view = rules_ledger.read([started(), lost, parked])
    assert (view.parked, view.beat_lost) == (parked, lost)
    view = rules_ledger.read([started(), lost, parked, leases.Continued(at=AT, holder=HOLDER, wave="8.1")])
    assert (view.parked, view.beat_lost, view.continued, len(view.tried)) == (None, None, 1, 1)
    view = rules_ledger.read([started(), parked, leases.TurnStarted(at=AT, index=0)])
    assert view.parked is None


def test_done_effects_are_those_after_the_newest_outcome() -> None:
    outcome = leases.Outcome(at=AT, outcome="failed", pending=("comment",))
    records = [
        started(),
        effect(0, "comment"),
        outcome,
        effect(1, "cancel-run", "found"),
        effect(2, "comment", "unclear"),
    ]
    assert rules_ledger.done_effects(records) == {"cancel-run"}


def test_diagnostics_are_numbers_and_closed_words() -> None:
    outcome = leases.Outcome(at=at(60), outcome="failed", code="final-run-failed", isolation="user+pid")
    records = [started(), *turn(0), intent(0, "push-work"), effect(0, "push-work", "refused"), outcome]
    found = rules_ledger.diagnose(records)
    assert (found.seconds, found.refused_effects, found.outcome, found.isolation) == (
        60, {"push-work": 1}, "failed", "user+pid",
    )  # fmt: skip
    assert rules_ledger.diagnose([]).seconds == 0
    assert rules_ledger.diagnose([started(), leases.BeatLost(at=AT, why="handoff")]).termination == "handoff"
    assert rules_ledger.diagnose([started(), leases.Parked(at=AT, on=(), why="job-limit")]).termination == "parked"
