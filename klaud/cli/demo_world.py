"""The demo's world: a small benchmark repository with a history, published rows, and the mess that dead sessions left.

Everything is made with the embedded GitHub's scene format; what klaud itself would have written (claims, ledgers,
leases) is written with klaud's own ref store over git, as the dead sessions did.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from klaud import names
from klaud.leases import model as records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from klaud.leases import store as stores

REPOSITORY = "acme/codecs"
BOT_TOKEN = "made-up-token-of-the-bot"  # noqa: S105 - a made-up token of the embedded GitHub
PERSON_TOKEN = "made-up-token-of-a-maintainer"  # noqa: S105 - likewise
BOT, REVIEW_BOT, MAINTAINER = "klaud-bot", "review-bot[bot]", "mira"
CONFIG_FILE = "configs/codecs.yaml"
DEAD_PLANNER, PRODUCER_OLD, PRODUCER_NEW = 8801, 4101, 4102
OLD_FAMILIES = ("bz2-text",)
NEW_FAMILIES = ("zlib-text", "lzma-text", "zlib-json", "bz2-json", "lzma-json", "zlib-mixed")
FAMILIES = (*OLD_FAMILIES, *NEW_FAMILIES)
LAST_RUN = 8999
"""The demo's history has run ids up to here."""

WITH_MODEL = {
    "framework: scripted": "framework: claude_sdk",
    "wait-run-seconds: 60": "wait-run-seconds: 300",
    "until-quiet-rounds: 120": "until-quiet-rounds: 3600",
}
"""What the demo's configuration says of the scripted agent, and in its place of a real one."""

DATA = Path(__file__).resolve().parent.parent / "fakehub" / "demo"


@dataclasses.dataclass(frozen=True, slots=True)
class Dead:
    """A session that ended without settling: its family, the runs it left, and how its draft stands."""

    key: str
    subject: str
    run: int
    number: int | None = None
    claimed: bool = True
    ledger: bool = True

    @property
    def family(self) -> str:
        """``<file>:<key>``."""
        return names.family_text(CONFIG_FILE, self.key)

    @property
    def candidate(self) -> str:
        """The candidate's id."""
        return names.candidate_id(self.family, self.subject)

    @property
    def branch(self) -> str:
        """The candidate's branch."""
        return names.branch(self.candidate)

    @property
    def marker(self) -> str:
        """What its runs carry in their names."""
        return names.run_marker(WAVE, self.candidate)


WAVE = f"{DEAD_PLANNER}.1"
ABANDONED = Dead("zlib-text", "image stdlib:fast", 8811, number=2)
RE_SWEPT = Dead("lzma-json", "image stdlib:small", 8812, number=3)
HANDED_OFF = Dead("bz2-json", "image stdlib:small", 8813, number=4)
STALE = Dead("lzma-text", "image stdlib:fast", 8814, ledger=False)
BARE = Dead("zlib-mixed", "image stdlib:fast", 8815, claimed=False)
DEAD = (ABANDONED, RE_SWEPT, HANDED_OFF, STALE, BARE)
LEFT_LEASES = (ABANDONED, BARE)


def files(*, old: bool) -> dict[str, str]:
    """Return the repository's files: at the old producer's commit, or since (but for klaud's configuration)."""
    found = {
        "tools/matrix.py": _text("old/matrix.py" if old else "tools/matrix.py"),
        "tools/bench.py": _text("tools/bench.py"),
        "tools/job.py": _text("tools/job.py"),
        CONFIG_FILE: _text("configs/codecs.yaml"),
    }
    if not old:
        found["candidates.jsonl"] = _text("candidates.jsonl")
        for path in sorted((DATA / "workflows").glob("*.yml")):
            found[f".github/workflows/{path.name}"] = path.read_text(encoding="utf-8")
    return found


def configuration(url: str, *, with_model: bool = False) -> dict[str, str]:
    """Return klaud's configuration for a hub at ``url``: its rows come from a feed there.

    ``with_model``: sessions are driven by the vendor's agent, and waited for as long as such ones take.
    """
    text = _text("klaud.yml").replace("{feeds}", f"{url}/_feeds")
    for scripted, real in WITH_MODEL.items() if with_model else ():
        text = text.replace(scripted, real)
    return {".github/klaud.yml": text}


def publish_rows(folder: Path, date: str) -> list[dict[str, Any]]:
    """Measure every family as its producer did, for real, and return the published rows; one has drifted since."""
    rows: list[dict[str, Any]] = []
    for old, run, keys in ((True, PRODUCER_OLD, OLD_FAMILIES), (False, PRODUCER_NEW, NEW_FAMILIES)):
        place = folder / ("old" if old else "new")
        for name, text in files(old=old).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
        matrix = [
            sys.executable,
            "tools/matrix.py",
            "test-config",
            "--config-keys",
            *keys,
            "--config-files",
            CONFIG_FILE,
        ]
        made = subprocess.run(
            matrix if old else [*matrix, "--no-evals"], cwd=place, capture_output=True, check=True, timeout=60
        )
        url = f"https://github.com/{REPOSITORY}/actions/runs/{run}"
        bench = [sys.executable, "tools/bench.py", "--run-url", url, "--date", date]
        done = subprocess.run(bench, cwd=place, input=made.stdout, capture_output=True, check=True, timeout=60)
        rows += json.loads(done.stdout)
    for row in rows:
        if (row["framework"], row["model"], row["isl"], row["conc"]) == ("zlib", "json", 64, 4):
            row["decode_num_workers"] = 3  # what the publisher got wrong: the matrix has 0
    return rows


def scene(rows: Sequence[dict[str, Any]], out: Path, handed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the scene: accounts, history, the drafts and runs that are left, and what each workflow's jobs do.

    ``handed``: further variables of the sessions' own processes.
    """
    head = files(old=False)
    config = head[CONFIG_FILE]
    commits: list[dict[str, Any]] = [
        {"name": "old", "files": files(old=True), "author": MAINTAINER, "date": "-40d"},
        {"name": "new", "files": files(old=False), "author": MAINTAINER, "date": "-20d"},
        {"name": "head", "files": {"README.md": "Codecs, measured.\n"}, "author": MAINTAINER, "date": "-2d"},
        {
            "name": "person", "parent": "head", "author": "noor", "date": "-1d",
            "files": {CONFIG_FILE: changed(config, "zlib-mixed", "stdlib:small")},
        },
    ]  # fmt: skip
    for dead in (ABANDONED, RE_SWEPT, HANDED_OFF, BARE):
        image = dead.subject.removeprefix("image ")
        commits.append(
            {
                "name": dead.key, "parent": "head", "author": BOT, "date": "-20h",
                "files": {CONFIG_FILE: changed(config, dead.key, image)},
            }
        )  # fmt: skip
    return {
        "scene": 1,
        "title": "a repository after three dead sessions",
        "repository": {"name": REPOSITORY},
        "accounts": [
            {"login": BOT, "id": 90001, "type": "Bot", "role": "write"},
            {"login": REVIEW_BOT, "id": 90002, "type": "Bot"},
            {"login": MAINTAINER, "id": 90003, "role": "admin"},
            {"login": "noor", "id": 90004, "role": "write"},
        ],
        "tokens": [
            {"value": BOT_TOKEN, "account": BOT},
            {"value": PERSON_TOKEN, "account": MAINTAINER},
        ],
        "labels": [names.HANDOFF_LABEL, "full-sweep"],
        "commits": commits,
        "branches": {
            "main": "head",
            "faster-mixed": "person",
            **{dead.branch: dead.key for dead in (ABANDONED, RE_SWEPT, HANDED_OFF, BARE)},
        },
        "pulls": _pulls(),
        "runs": _runs(),
        "workflows": _workflows(out, handed or {}),
        "feeds": {"rows.json": {"json": list(rows)}},
        "settings": {"concurrent-jobs": 6},
    }


def changed(config: str, key: str, image: str) -> str:
    """Return the configuration with one family's image changed, and nothing else."""
    head, mark, rest = config.partition(f"{key}:\n")
    return head + mark + rest.replace("stdlib:balanced", image, 1)


def write_records(store: stores.LeaseStore, oid_of: Callable[[str], str], at: datetime.datetime) -> None:
    """Write what the dead sessions wrote over git: claims, ledgers, and the leases of recovery passes that died."""
    ref_names = names.RefNames()
    base = oid_of("main")
    for dead in DEAD:
        holder = records.Holder(run_id=dead.run, attempt=1, job="session", nonce="demo")
        if dead.claimed:
            store.take_claim(
                records.Claim(at=at, wave=WAVE, candidate=dead.candidate, family=dead.family, base=base, holder=holder)
            )
        if dead.ledger:
            head = oid_of(dead.branch)
            started = records.SessionStarted(
                at=at, wave=WAVE, candidate=dead.candidate, family=dead.family, base=base, holder=holder
            )
            ledger = store.start_ledger(ref_names.session(WAVE, dead.candidate), started)
            if not isinstance(ledger, records.Ledger):
                message = "the demo's own refs are taken"
                raise TypeError(message)
            store.append(ledger, *_done(dead, head, at))
    for dead in LEFT_LEASES:
        store.take_lease(
            records.Lease(
                at=at, wave=WAVE, candidate=dead.candidate,
                holder=records.Holder(run_id=DEAD_PLANNER, attempt=1, job="recover", nonce="demo"),
            )
        )  # fmt: skip


def _done(dead: Dead, head: str, at: datetime.datetime) -> list[records.LedgerRecord]:
    ref = f"refs/heads/{dead.branch}"
    found: list[records.LedgerRecord] = [
        records.Intent(at=at, seq=0, effect="push-work", oids=(head,), ref=ref),
        records.Effected(at=at, seq=0, effect="push-work", result="done", oid=head),
    ]
    if dead.number is not None:
        found += [
            records.Intent(at=at, seq=1, effect="open-draft"),
            records.Effected(at=at, seq=1, effect="open-draft", result="done", number=dead.number),
        ]
    if dead is ABANDONED:
        found += [
            records.Intent(at=at, seq=2, effect="dispatch-smoke", marker=dead.marker),
            records.Effected(at=at, seq=2, effect="dispatch-smoke", result="done", run_id=8821),
        ]
    if dead is RE_SWEPT:
        found += [
            records.Intent(at=at, seq=2, effect="start-final-run", number=dead.number, label="full-sweep"),
            records.Effected(at=at, seq=2, effect="start-final-run", result="done", run_id=8822),
        ]
    return found


def _text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def _pulls() -> list[dict[str, Any]]:
    noise = [{"by": REVIEW_BOT, "body": "Looks like a configuration change.", "at": "-19h"}]
    found: list[dict[str, Any]] = [
        {
            "number": 1,
            "head": "faster-mixed",
            "author": "noor",
            "title": "Smaller images for zlib-mixed",
            "created": "-1d",
        }
    ]
    for dead in (ABANDONED, RE_SWEPT, HANDED_OFF):
        pull: dict[str, Any] = {
            "number": dead.number, "head": dead.branch, "author": BOT, "draft": True, "created": "-20h",
            "title": f"{dead.key}: {dead.subject}", "comments": noise,
        }  # fmt: skip
        if dead is HANDED_OFF:
            pull["labels"] = [names.HANDOFF_LABEL]
            pull["events"] = [{"event": "labeled", "by": MAINTAINER, "label": names.HANDOFF_LABEL, "at": "-18h"}]
        if dead is RE_SWEPT:
            pull["labels"] = ["full-sweep"]
            pull["events"] = [{"event": "labeled", "by": BOT, "label": "full-sweep", "at": "-19h"}]
        found.append(pull)
    return found


def _runs() -> list[dict[str, Any]]:
    gone = {"status": "completed", "actor": BOT, "created": "-21h"}
    final = {"workflow": "bench-final.yml", "event": "push", "actor": MAINTAINER}
    found: list[dict[str, Any]] = [
        {"id": PRODUCER_OLD, **final, "commit": "old", "created": "-40d"},
        {"id": PRODUCER_NEW, **final, "commit": "new", "created": "-20d"},
        {"id": DEAD_PLANNER, "workflow": "klaud-plan.yml", "conclusion": "failure", **gone},
    ]
    found += [
        {
            "id": dead.run, "workflow": "klaud-candidate.yml", "conclusion": "cancelled", **gone,
            "title": f"klaud candidate {dead.candidate} {dead.marker}",
        }
        for dead in DEAD
    ]  # fmt: skip
    found += [
        {
            "id": 8821, "workflow": "bench-smoke.yml", "status": "in_progress", "actor": BOT, "created": "-20h",
            "branch": ABANDONED.branch, "title": f"bench smoke zlib-text {ABANDONED.marker}",
        },
        {
            "id": 8822, "workflow": "bench-final.yml", "event": "pull_request", "status": "completed",
            "conclusion": "failure", "actor": BOT, "triggering-actor": MAINTAINER, "attempt": 2, "created": "-19h",
            "branch": RE_SWEPT.branch, "pulls": [RE_SWEPT.number],
        },
    ]  # fmt: skip
    return found


def _workflows(out: Path, handed: Mapping[str, str]) -> dict[str, Any]:
    brief = f"{out}/candidate-${{{{ inputs.candidate }}}}.json"
    klaud = '"$PYTHON" -m klaud'
    session = (
        f'{klaud} session --brief "$BRIEF" --claim "$CLAIM" && '
        f'exec {klaud} finish --wave "$WAVE" --candidate "$CANDIDATE" --brief "$BRIEF"'
    )
    plan = (
        f'if [ "$VERB" = recover ]; then exec {klaud} recover --out "$OUT/again"; fi; '
        f'exec {klaud} wave --until-quiet --out "$OUT"'
    )
    url = "https://github.com/${{ github.repository }}/actions/runs/${{ github.run_id }}"
    job = ["{python}", "tools/job.py"]
    told = ["--run-url", url, "--date", datetime.datetime.now(datetime.UTC).date().isoformat()]
    return {
        "klaud-plan.yml": {
            "command": ["sh", "-c", plan],
            "env": {"OUT": str(out), "PYTHON": sys.executable, "VERB": "${{ inputs.verb }}"},
            "token": BOT_TOKEN,
            "checkout": True,
        },
        "klaud-candidate.yml": {
            "command": ["sh", "-c", session],
            "env": {
                "BRIEF": brief, "PYTHON": sys.executable, "WAVE": "${{ inputs.wave }}",
                "CANDIDATE": "${{ inputs.candidate }}", "CLAIM": "${{ inputs.claim }}", **handed,
            },
            "token": BOT_TOKEN,
            "checkout": True,
        },
        "bench-smoke.yml": {
            "command": [*job, "smoke", "--families", "${{ inputs.family }}", *told],
            "checkout": True,
        },
        "bench-final.yml": {
            "jobs": {
                "final": {
                    "command": [*job, "final", *told],
                    "checkout": True,
                    "artifacts": {"benchmark-results": "results"},
                }
            }
        },
    }  # fmt: skip
