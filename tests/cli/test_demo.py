"""The demo without a wave: what a real agent needs, where its key goes, and what is told of a hub that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from klaud import config, errors, fakehub
from klaud.cli import demo, demo_report, demo_world
from klaud.reports import render

if TYPE_CHECKING:
    from pathlib import Path

KEY = "canary-of-the-model"


def test_a_real_agent_without_a_key_begins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.InputError, match="ANTHROPIC_API_KEY") as caught:
        demo.demo(out=tmp_path / "out", agent=demo.Agent.CLAUDE)
    assert "--agent" in caught.value.advice
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(errors.MissingToolError) as caught:
        demo._need("no_such_module_anywhere", "no-such-package", "demo,agent")
    assert "klaud[demo,agent]" in caught.value.advice


def holders(value: Any, path: str = "") -> list[str]:
    """Return where in a scene the key is."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in holders(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [found for inner in value for found in holders(inner, path)]
    return [path] if KEY in str(value) else []


def test_the_key_is_handed_to_the_sessions_processes_and_nowhere_else(tmp_path: Path) -> None:
    assert holders(demo_world.scene((), tmp_path)) == []
    made = demo_world.scene((), tmp_path, {"ANTHROPIC_API_KEY": KEY})
    assert holders(made) == [".workflows.klaud-candidate.yml.env.ANTHROPIC_API_KEY"]
    assert KEY not in str(demo_world.configuration("http://127.0.0.1:1", with_model=True))


@pytest.mark.parametrize(("with_model", "framework"), [(False, "scripted"), (True, "claude_sdk")])
def test_the_configuration_names_the_agent(with_model: bool, framework: str, tmp_path: Path) -> None:
    (text,) = demo_world.configuration("http://127.0.0.1:1", with_model=with_model).values()
    (tmp_path / "klaud.yml").write_text(text)
    read = config.load(tmp_path / "klaud.yml")
    assert read.session.framework == framework
    assert (read.planner.until_quiet_rounds > 1000) is with_model
    assert all((real in text) is with_model for real in demo_world.WITH_MODEL.values())


def test_errors_of_the_hub_are_shown_and_only_then(tmp_path: Path) -> None:
    with fakehub.Hub(tmp_path / "hub") as hub:
        hub.create_repository(demo_world.REPOSITORY, files={"a": "b"})
        ran = demo_report.Ran(run_id=1, conclusion="success", first_call=0, log="")

        def told() -> str:
            made = demo_report.make(hub=hub, out=tmp_path, first=ran, second=ran, seconds=1)
            return render.text(made, width=110)

        assert "Errors of the embedded GitHub" not in told()
        assert "It wrote nothing, not even a report." in told()
        hub.errors.append("unknown route GET /repos/acme/codecs/pages")
        assert "unknown route GET /repos/acme/codecs/pages" in told()
