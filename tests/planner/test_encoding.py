"""Databases as candidates: which there are, what each asks for, and what is refused before anything is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from klaud import errors, names
from klaud.encoder import model as bounds
from klaud.encoder import request
from klaud.planner import encoding, model, planning, reviewing, run, settings
from klaud.session import model as session
from tests.encoder.test_request import BAD, MODEL
from tests.planner.test_devices import clone, git, places
from tests.planner.test_planning import NOTHING
from tests.support import planner_world as w
from tests.support.memory_world import World

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["clone"]

FLOWS = session.Workflows(final="check-references.yml")
POLICY = bounds.Policy(model=MODEL)


def entry(**more: Any) -> settings.References:
    return settings.References(**{"name": "bench", "workflows": FLOWS, **more})


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "more")


def plan(root: Path, of: settings.References, **more: Any) -> model.Plan:
    return planning.make(
        [], model.Policy(), wave="70.1", seed=1, places=places(root), generate=lambda *_: [], standing=NOTHING,
        references=[of], **more,
    )  # fmt: skip


def changes(made: model.Plan) -> dict[str, Any]:
    return {one.family: one.change for one in made.candidates}


def test_a_database_without_a_complete_reference_is_a_candidate(clone: Path) -> None:
    put(clone, "data/shop/shop_kb.jsonl", "data/shop/shop.sqlite", "data/done/done_kb.jsonl", "data/done/done.sqlite")
    put(
        clone, "references/bench/done/_reference_fp.txt", "references/bench/shop/_setup_results.json", "data/note/x.txt"
    )
    made = plan(clone, entry(options={"authentication": "api-key"}))
    (one,) = made.candidates
    assert (one.family, one.kind, one.benchmark) == ("bench:shop", "encode", "bench")
    assert one.change == {"database": "shop", "authentication": "api-key"}
    tree = places(clone).files.oid("data/shop")
    assert one.subject == f"encode shop at {tree[:12]}"
    put(clone, "data/shop/shop_column_meaning_base.json")
    assert plan(clone, entry()).candidates[0].candidate != one.candidate


def test_a_dialect_is_a_family_of_its_own(clone: Path) -> None:
    put(clone, "data/shop/shop_kb.jsonl", "references/bench/shop/_reference_fp.txt")
    assert plan(clone, entry()).candidates == ()
    made = plan(clone, entry(options={"dialect": "postgres"}))
    assert changes(made) == {"bench:shop.postgres": {"database": "shop", "dialect": "postgres"}}
    assert made.families == {"bench": 1}


def test_a_source_says_what_is_encoded_and_how(clone: Path) -> None:
    for name in ("one", "two"):
        put(clone, f"data/{name}/{name}_kb.jsonl", f"data/{name}/{name}.sqlite")
    (clone / "offers.jsonl").write_text(
        '{"family": "bench:*", "match": {"dialect": "sqlite"}, "subject": "again", "change": {"rebuild": true}}\n'
    )
    put(clone, "more.txt")
    made = plan(clone, entry(sources=(settings.Source(file="offers.jsonl"),), options={"budget": "2h"}))
    assert changes(made) == {
        f"bench:{name}": {"database": name, "budget": "2h", "rebuild": True} for name in ("one", "two")
    }
    assert [one.family for one in plan(clone, entry(), only=["bench:t*"]).candidates] == ["bench:two"]


def test_a_folder_that_is_no_database_is_reported_and_hides_no_other(clone: Path) -> None:
    put(clone, "data/a-b/a-b_kb.jsonl", "data/a-b/a-b.sqlite", "data/ok/ok_kb.jsonl", "data/ok/ok.sqlite")
    made = plan(clone, entry())
    assert [one.family for one in made.candidates] == ["bench:ok"]
    assert [(one.family, one.code) for one in made.not_generated] == [("bench:a-b", "unreadable")]


def candidate(change: dict[str, Any], database: str = "shop") -> model.Candidate:
    family = f"bench:{database}"
    return model.Candidate(
        candidate=names.candidate_id(family, "encode"), family=family, benchmark="bench", kind="encode",
        subject="encode", change={"database": database, "authentication": "api-key", **change},
    )  # fmt: skip


def select(on: World, *candidates: model.Candidate, of: settings.References | None = None) -> run.Selected:
    made = msgspec.structs.replace(w.plan(), candidates=candidates)
    given = w.given(made, refuse=lambda brief: encoding.refused(brief, of or entry(), POLICY))
    return run.select(w.world(on), given)


REFUSED = [bad for bad in BAD if bad[0] not in {"database", "no database", "dialect"}]
"""Those three are another family, or none: a plan never has them (below)."""


@pytest.mark.parametrize("change", [bad[1] for bad in REFUSED], ids=[bad[0] for bad in REFUSED])
def test_what_the_command_line_refuses_a_wave_refuses_alike_and_makes_nothing(change: dict[str, Any]) -> None:
    on = World()
    one = candidate(change)
    with pytest.raises(errors.InputError) as caught:
        request.check(request.from_change("bench", one.change), POLICY)
    found = select(on, one, candidate({}, "other"))
    stopped, good = found.selection.decisions
    assert (stopped.gate, stopped.code, stopped.message) == ("dispatch", "request-refused", str(caught.value))
    assert good.selected
    assert list(found.briefs) == [good.candidate]
    assert len(w.world(on, client="reader").store.snapshot().claims) == 1


def test_broken_twin_a_wave_that_does_not_ask_the_validator_starts_a_wrong_request() -> None:
    on = World()
    made = msgspec.structs.replace(w.plan(), candidates=(candidate({"mode": "c-interact"}),))
    assert run.select(w.world(on), w.given(made)).selection.decisions[0].selected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"database": "../x"}, "database '../x' is not a name"),
        ({"database": "other"}, "is of family 'bench:shop', and its change asks for bench:other"),
        ({"dialect": "oracle"}, "dialect 'oracle' of database shop is not supported"),
        ({"dialect": "postgres"}, "is of family 'bench:shop', and its change asks for bench:shop.postgres"),
        ({"framework": "scripted", "authentication": ""}, "needs the program that answers for the agent"),
        ({"program": "sh -c x"}, "has no 'program' in its change"),
    ],
)
def test_a_change_that_means_another_family_or_a_program_is_refused(change: dict[str, Any], said: str) -> None:
    (decision,) = select(World(), candidate(change)).selection.decisions
    assert decision.code == "request-refused"
    assert said in decision.message


def test_a_candidate_that_encodes_needs_neither_baseline_nor_room() -> None:
    on = World()
    made = msgspec.structs.replace(w.plan("zlib"), candidates=(candidate({"framework": "scripted"}),))
    of = entry(program=("agent",))
    given = w.given(made, refuse=lambda brief: encoding.refused(brief, of, bounds.Policy()), verdicts={})
    found = run.select(w.world(on), given)
    (decision,) = found.selection.decisions
    assert (decision.selected, decision.bundle) == (True, "")
    brief = found.briefs[decision.candidate]
    assert (brief.kind, brief.bundle, brief.claim) == ("encode", "", decision.claim)
    assert found.bundles == {}
    (missing,) = (encoding.refused(brief, None, POLICY),)
    assert missing is not None


def test_a_pull_request_on_its_inputs_or_its_reference_is_about_it() -> None:
    made = msgspec.structs.replace(w.plan(), candidates=(candidate({}),))
    (found,) = reviewing.candidates(made, [], [entry()])
    assert found.recipes == ("references/bench/shop/**", "data/shop/**")
    assert reviewing.candidates(made, [], []) == ()
