"""What README and docs say is so: verbs, settings with their defaults, refs, links, and every command that is shown."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from klaud import config, names
from klaud.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"`klaud ([a-z][a-z-]*)([^`\n]*)`|^(?:\$ |    )?klaud ([a-z][a-z-]*)(.*)$", re.MULTILINE)

DEFAULTS: dict[str, Any] = {
    "bot": config.GITHUB_ACTIONS_BOT,
    "ignored-actors": (),
    "planner.candidates-per-wave": 4,
    "recovery.max-closures": 10,
    "session.isolation": "required",
    "review.mode": "rules",
}
"""README's defaults in words -> the value that the words stand for; the other rows say ``required`` or ``none``."""

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def table(title: str) -> list[list[str]]:
    """Return the rows of the first table below a title of the README."""
    part = README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return rows[2:] if set(rows[1][0]) <= {"-", " "} else rows[1:]


def readme_tool() -> Any:
    spec = importlib.util.spec_from_file_location("readme_tool", ROOT / "tools" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def minimal() -> config.Config:
    """Return a configuration with only what has no default."""
    text = """
benchmarks:
  - generator: {layouts: [{inputs: [tools], commands: [[python3, "{root}/tools/matrix.py", "{family}"]]}]}
    rows: {file: rows.json}
    sources: [{file: candidates.jsonl}]
    workflows: {final: final.yml}
"""
    return config.parse(text.encode())


def command_of(verb: str) -> Any:
    root: Any = typer.main.get_command(main.app)
    return root.get_command(typer.Context(root), verb)


def options_of(command: Any) -> set[str]:
    """Return a command's long options, and those of its own verbs."""
    found = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    for inner in getattr(command, "commands", {}).values():
        found |= options_of(inner)
    return found


def test_the_table_of_verbs_is_what_help_says() -> None:
    shown = README.split("<!-- verbs:begin -->\n", 1)[1].split("\n<!-- verbs:end -->", 1)[0]
    assert shown == readme_tool().verbs()


@pytest.mark.parametrize("row", table("Settings"), ids=lambda row: row[0].strip("`"))
def test_every_setting_exists_with_the_default_that_is_told(row: list[str]) -> None:
    key, default = row[0].strip("`"), row[2]
    loaded: Any = minimal()
    required = default.startswith(("required", "none: "))
    for step in key.split("."):
        name = step.removesuffix("[]").replace("-", "_")
        assert hasattr(loaded, name), f"there is no setting {key}"
        loaded = getattr(loaded, name)
        if step.endswith("[]"):
            (loaded,) = loaded
    if default.startswith("none: "):
        assert loaded is None
    elif required:
        with pytest.raises(Exception, match=r"missing|needed|at least"):
            without(key)
    else:
        assert loaded == DEFAULTS[key]
        assert default.strip("`") in {"github-actions[bot]", "none", str(loaded)}


def without(key: str) -> None:
    """Read the minimal configuration without one key of its benchmark."""
    name = key.rpartition(".")[2]
    text = """
benchmarks:
  - name: one
    generator: {layouts: [{inputs: [tools], commands: [[python3, "{root}/tools/matrix.py", "{family}"]]}]}
    rows: {file: rows.json}
    sources: [{file: candidates.jsonl}]
    workflows: {final: final.yml}
"""
    lines = [line for line in text.splitlines() if not line.strip().startswith(f"{name}:")]
    assert len(lines) == len(text.splitlines()) - 1
    config.parse("\n".join(lines).encode())


def test_the_table_of_refs_is_what_klaud_can_write() -> None:
    made = names.RefNames()
    family, wave, oid = "configs/a.yaml:b", "7.1", "0" * 40
    candidate = names.candidate_id(family, "x")
    short = names.short_id(family)
    built = {
        made.claim(short): {short: "<family>"},
        made.session(wave, candidate): {wave: "<wave>", candidate: "<candidate>"},
        made.lease(wave, candidate): {wave: "<wave>", candidate: "<candidate>"},
        made.archive("branch", "n", oid): {"/branch/n/": "/<kind>/<name>/", oid: "<oid>"},
        made.tombstone(candidate): {candidate: "<candidate>"},
        made.family(short): {short: "<family>"},
        made.observed(): {},
        f"refs/heads/{names.branch(candidate)}": {candidate: "<candidate>"},
    }
    told = []
    for ref, words in built.items():
        text = ref
        for part, word in words.items():
            assert part in text
            text = text.replace(part, word)
        told.append(text)
    assert [row[0].strip("`") for row in table("Every ref klaud writes")] == told
    public = {name for name in vars(names.RefNames) if not name.startswith("_")}
    assert public - {"prefix", "listed_prefixes", "parse"} == {
        "claim", "session", "lease", "archive", "tombstone", "family", "observed", "branch",
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_title(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name}: {target}"
        assert place.is_relative_to(ROOT), f"{page.name}: {target} leads out of the repository"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place.read_text(encoding="utf-8")), f"{page.name}: {target}"


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of a page's titles."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_shown_exists_with_its_options(page: Path) -> None:
    for match in COMMAND.finditer(page.read_text(encoding="utf-8")):
        verb, rest = (match[1], match[2]) if match[1] else (match[3], match[4])
        if match[3] and verb not in main.VERBS and not rest.strip().startswith("-"):
            continue  # a sentence that begins a line with the name
        command = command_of(verb)
        assert command is not None, f"{page.name}: there is no verb {verb!r}"
        told = rest.split(" -- ")[0].split("#")[0].split(" && ")[0]
        for option in OPTION.findall(told):
            assert option in options_of(command), f"{page.name}: klaud {verb} has no {option}"


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    found = [match[1] or match[3] for match in COMMAND.finditer("Run `klaud heal --all` or\n    klaud mend --now\n")]
    assert found == ["heal", "mend"]
    assert [command_of(verb) for verb in found] == [None, None]


def test_the_changelog_names_every_verb() -> None:
    text = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    missing = [verb for verb in main.VERBS if f"`klaud {verb}" not in text and f"`{verb}`" not in text]
    assert missing == []
