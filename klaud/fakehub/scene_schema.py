"""The scene format: every key, its kind, and what it means. The checker, the loader and docs/scenes.md read this table.

A kind is a word (``text``, ``number``, ``flag``, ``time``, ``any``, ``names``, ``table``, ``files``), a tuple of the words
that are allowed, a ``Section`` (a mapping with its own keys), ``Many(section)`` (a list) or ``Named(section)`` (a mapping
from names to sections). ``time`` is an ISO 8601 time, or an offset from the clock's start such as ``-2h`` or ``+90s``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from klaud.fakehub.faults import KINDS
from klaud.fakehub.state import RANKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of a section."""

    kind: Any
    doc: str
    required: bool = False
    null: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """A mapping with known keys. ``only_one``: exactly one key may be set."""

    name: str
    doc: str
    keys: Mapping[str, Key]
    only_one: bool = False


@dataclasses.dataclass(frozen=True)
class Many:
    """A list of sections. ``short`` names the key that a plain text in the list stands for."""

    section: Section
    short: str = ""


@dataclasses.dataclass(frozen=True)
class Named:
    """A mapping from names to sections."""

    section: Section


STATUSES = ("queued", "in_progress", "completed", "requested", "waiting", "pending")
ANSWERS = ("accept", "ignore", "refuse")

CLOCK = Section(
    "clock",
    "The hub's time.",
    {
        "start": Key("time", "when the scene begins (default: now)"),
        "rate": Key("number", "hub seconds that pass in one second (default 1; 0 stands still)"),
    },
)

REPOSITORY = Section(
    "repository",
    "The one repository of the scene.",
    {
        "name": Key("text", "`owner/name` (default `acme/bench`)"),
        "default-branch": Key("text", "its default branch (default `main`)"),
        "private": Key("flag", "whether tokens without a right to it are told 404"),
        "drafts": Key("flag", "whether the plan has draft pull requests (default true)"),
    },
)

ACCOUNT = Section(
    "account",
    "A user, bot or organisation. Commits are an account's by their e-mail address.",
    {
        "login": Key("text", "its login; a bot's ends in `[bot]` as GitHub writes it", required=True),
        "id": Key("number", "its account id (default: the next free one)"),
        "type": Key(("User", "Bot", "Organization", "Mannequin"), "its type (default `User`)"),
        "role": Key(tuple(RANKS), "its role on the repository (default `none`)"),
        "name": Key("text", "its display name (default: the login)"),
        "email": Key("text", "its e-mail address (default: GitHub's noreply form)"),
    },
)

TOKEN = Section(
    "token",
    "A credential.",
    {
        "value": Key("text", "the token itself, made up", required=True),
        "account": Key("text", "the login it acts as", required=True),
        "kind": Key(
            ("pat", "app", "github_token"),
            "what kind of token (default `pat`): who may convert drafts, whose acts start workflows",
        ),
        "permissions": Key(
            "table", "permission -> `read` or `write`; what is left out is not permitted (default: everything)"
        ),
    },
)

RULESET = Section(
    "ruleset",
    "Rules for refs. The API tells of them; pushes are not refused (that is what `faults` are for).",
    {
        "name": Key("text", "its name", required=True),
        "target": Key(("branch", "tag", "push"), "what it is about (default `branch`)"),
        "enforcement": Key(("active", "evaluate", "disabled"), "whether it holds (default `active`)"),
        "include": Key("names", "patterns of full refs, `~ALL` or `~DEFAULT_BRANCH` (default `~ALL`)"),
        "exclude": Key("names", "patterns of full refs"),
        "rules": Key("any", "a list of `{type: ..., parameters: {...}}`, as GitHub words them", required=True),
        "bypass": Key("flag", "whether whoever asks is above it"),
    },
)

LABEL = Section(
    "label",
    "A label of the repository.",
    {
        "name": Key("text", "its name", required=True),
        "color": Key("text", "six hex digits"),
        "description": Key("text", "what it says"),
    },
)

COMMIT = Section(
    "commit",
    "A commit, known to the rest of the scene by its name.",
    {
        "name": Key("text", "the name by which the scene refers to it", required=True),
        "parent": Key("text", "the commit it builds on (default: the one before it in the list; the first has none)"),
        "parents": Key("names", "several parents, for a merge"),
        "files": Key("files", "path -> text; null deletes the file"),
        "from": Key("text", "a directory beside the scene whose files are added"),
        "author": Key("text", "login of the author (default: nobody's address)", null=True),
        "author-email": Key("text", "an address in place of the account's"),
        "committer": Key("text", "login of the committer (default: the author)", null=True),
        "date": Key("time", "when (default: the clock's start)"),
        "message": Key("text", "the message (default: the name)"),
        "count": Key("number", "make a chain of so many such commits; the name is the last one's"),
    },
)

REF = Section(
    "ref",
    "A ref outside of the branches' list, or a branch with a record.",
    {
        "ref": Key("text", "its full name; `<oid>` in it becomes the oid that it points at", required=True),
        "record": Key("any", "a mapping that becomes the JSON message of a commit with an empty tree"),
        "records": Key("any", "several such mappings, oldest first: a chain of commits (a ledger)"),
        "text": Key("text", "the message, given as it is"),
        "commit": Key("text", "the name of a commit or branch that it points at"),
        "author": Key("text", "login of the author of the record's commit"),
        "date": Key("time", "when it was written"),
    },
)

EVENT = Section(
    "event",
    "One event of a pull request's timeline.",
    {
        "event": Key("text", "GitHub's REST name, such as `labeled`, `reopened`, `ready_for_review`", required=True),
        "by": Key("text", "login of the actor; null for a deleted account", required=True, null=True),
        "at": Key("time", "when (default: the clock's start)"),
        "label": Key("text", "the label of `labeled` and `unlabeled`"),
        "from": Key("text", "the old title of `renamed`"),
        "to": Key("text", "the new title of `renamed`"),
        "assignee": Key("text", "the login of `assigned`"),
        "before": Key("text", "the old commit of `head_ref_force_pushed`"),
        "commit": Key("text", "the new commit of `head_ref_force_pushed`"),
    },
)

COMMENT = Section(
    "comment",
    "A comment.",
    {
        "by": Key("text", "login of the author; null for a deleted account", required=True, null=True),
        "body": Key("text", "what it says", required=True),
        "at": Key("time", "when (default: the clock's start)"),
    },
)

REVIEW = Section(
    "review",
    "A review.",
    {
        "by": Key("text", "login of the author; null for a deleted account", required=True, null=True),
        "state": Key(
            ("APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"),
            "what it says of the change",
            required=True,
        ),
        "body": Key("text", "its text"),
        "at": Key("time", "when (default: the clock's start)"),
    },
)

PULL = Section(
    "pull request",
    "A pull request. Events do not follow from the fields: what the timeline is to show is listed in `events`.",
    {
        "number": Key("number", "its number (default: the next one)"),
        "head": Key("text", "the branch it comes from", required=True),
        "head-repository": Key(
            "text", "`owner/name` of a fork; null for a fork that was deleted (default: this repository)", null=True
        ),
        "head-commit": Key("text", "the commit it stands at (default: the branch's)"),
        "base": Key("text", "the branch it goes to (default: the default branch)"),
        "base-commit": Key("text", "what the base stood at (default: where it stands now)"),
        "author": Key("text", "login of the author; null for a deleted account", required=True, null=True),
        "title": Key("text", "its title (default: the branch's name)"),
        "body": Key("text", "its body"),
        "draft": Key("flag", "whether it is a draft"),
        "state": Key(("open", "closed", "merged"), "default `open`"),
        "labels": Key("names", "its labels"),
        "assignees": Key("names", "the logins assigned"),
        "created": Key("time", "when it was opened (default: the clock's start)"),
        "updated": Key("time", "when it last changed (default: as the newest thing in it)"),
        "closed": Key("time", "when it was closed or merged"),
        "closed-by": Key("text", "login of who closed or merged it", null=True),
        "edited": Key("time", "when title or body were last edited"),
        "edited-by": Key("text", "login of who edited", null=True),
        "mergeable": Key(
            ("MERGEABLE", "CONFLICTING", "UNKNOWN"), "default `MERGEABLE`; a conflict starts no `pull_request` runs"
        ),
        "commits-told": Key("number", "what its own counter of commits says, where it is not the truth"),
        "events": Key(Many(EVENT), "the timeline's events"),
        "comments": Key(Many(COMMENT), "the comments"),
        "reviews": Key(Many(REVIEW), "the reviews"),
    },
)

JOB = Section(
    "job",
    "A job of a run.",
    {
        "name": Key("text", "its name", required=True),
        "id": Key("number", "its id (default: the next one)"),
        "status": Key("text", "its status (default: the run's)"),
        "conclusion": Key("text", "its conclusion (default: the run's)", null=True),
    },
)

STEP = Section(
    "step",
    "A change of a scripted run.",
    {
        "after": Key("number", "hub seconds after the step before it", required=True),
        "status": Key("text", "the status from then on", required=True),
        "conclusion": Key("text", "the conclusion, with `completed`"),
    },
)

ARTIFACT = Section(
    "artifact",
    "An artifact of a run.",
    {
        "name": Key("text", "its name", required=True),
        "files": Key("files", "file name -> text, zipped"),
        "text": Key("text", "the bytes of the download as they are (for a broken zip)"),
        "expired": Key("flag", "whether it has expired"),
    },
)

RUN = Section(
    "run",
    "A workflow run.",
    {
        "id": Key("number", "its id (default: the next one)"),
        "workflow": Key("text", "the workflow's file name", required=True),
        "title": Key("text", "its run name, where klaud's marker is (default: the workflow's name)"),
        "event": Key("text", "what started it (default `workflow_dispatch`)"),
        "branch": Key("text", "its head branch (default: the default branch)", null=True),
        "commit": Key("text", "its head commit (default: the branch's)"),
        "status": Key("text", f"its status, such as {', '.join(STATUSES)} (default `completed`)"),
        "conclusion": Key("text", "its conclusion (default `success` where completed)", null=True),
        "actor": Key("text", "login of who started it (default: the repository's owner)", null=True),
        "triggering-actor": Key("text", "login of who started the newest attempt (default: the actor)", null=True),
        "attempt": Key("number", "the number of the newest attempt (default 1)"),
        "created": Key("time", "when it was made (default: the clock's start)"),
        "updated": Key("time", "when it last changed (default: when it was made)"),
        "jobs": Key(Many(JOB), "its jobs (default: one that is as the run is; `[]` for none)"),
        "artifacts": Key(Many(ARTIFACT), "what it published"),
        "inputs": Key("table", "the inputs of its dispatch"),
        "pulls": Key("any", "the numbers of the pull requests it belongs to"),
        "then": Key(Many(STEP), "how it goes on"),
        "visible-after": Key("number", "hub seconds until listings and lookups show it"),
        "on-cancel": Key(
            ANSWERS, "what a cancel does: `accept` (default), `ignore` (202 and nothing) or `refuse` (409)"
        ),
        "on-force-cancel": Key(ANSWERS, "what a forced cancel does"),
    },
)

COMMAND = Section(
    "command",
    "A child process that does a job.",
    {
        "command": Key(
            "names", "the argument list; `{python}` is the interpreter, `${{ … }}` is an expression", required=True
        ),
        "env": Key("table", "variables, with expressions"),
        "token": Key("text", "the token it is given as KLAUD_TOKEN"),
        "checkout": Key("flag", "whether the run's commit is checked out first"),
        "artifacts": Key("table", "artifact name -> path below the workspace"),
    },
)

WORKFLOW = Section(
    "workflow",
    "What the runs of a workflow file do. Without an entry here a run stays queued.",
    {
        "steps": Key(Many(STEP), "a scripted run: how its status goes"),
        "artifacts": Key("any", "what a scripted run publishes at its end: artifact name -> file name -> text"),
        "command": Key("names", "a child process for every job; see command"),
        "env": Key("table", "variables of `command`, with expressions"),
        "token": Key("text", "the token that `command` is given as KLAUD_TOKEN"),
        "checkout": Key("flag", "whether the run's commit is checked out first for `command`"),
        "jobs": Key(Named(COMMAND), "a command for each job's key"),
        "state": Key("text", "the workflow's state (default `active`), such as `disabled_inactivity`"),
    },
)

FEED = Section(
    "feed",
    "What `/_feeds/NAME` answers.",
    {
        "json": Key("any", "a value, sent as JSON"),
        "text": Key("text", "the bytes as they are"),
        "file": Key("text", "a file beside the scene"),
    },
    only_one=True,
)

FAULT = Section(
    "fault",
    "What goes wrong on purpose. Which fields a kind reads is in the table of kinds.",
    {
        "match": Key("text", "`METHOD glob`, over the path or the route's template", required=True),
        "kind": Key(tuple(KINDS), "what is done", required=True),
        "times": Key("number", "how many matching calls (default 1; null: all)", null=True),
        "skip": Key("number", "how many matching calls go unharmed first"),
        "account": Key("text", "only calls of this login"),
        "status": Key("number", "an HTTP status"),
        "message": Key("text", "a text"),
        "seconds": Key("number", "a time"),
        "rows": Key("number", "a number of rows or bytes"),
        "total": Key("number", "a count"),
        "variant": Key("text", "which variant of the kind"),
    },
)

DEED = Section(
    "deed",
    "One thing that a person does. `by` says who; the other keys are one deed.",
    {
        "by": Key("text", "login of who does it", null=True),
        "pull": Key("number", "the pull request that the deed is about"),
        "run": Key("number", "the run that the deed is about"),
        "push": Key("text", "commit `files` on this branch"),
        "files": Key("files", "what `push` commits"),
        "force": Key("flag", "`push` replaces the branch's last commit"),
        "committer": Key("text", "login of the committer of `push`, where it is another"),
        "delete-branch": Key("text", "delete this branch"),
        "comment": Key("text", "comment on `pull`"),
        "label": Key("text", "add a label to `pull`"),
        "unlabel": Key("text", "remove a label from `pull`"),
        "rename": Key("text", "give `pull` another title"),
        "edit": Key("text", "give `pull` another body"),
        "assign": Key("text", "assign this login to `pull`"),
        "review": Key("text", "review `pull`: a state such as `APPROVED`"),
        "close": Key("flag", "close `pull`"),
        "reopen": Key("flag", "reopen `pull`"),
        "ready": Key("flag", "mark `pull` ready for review"),
        "draft": Key("flag", "turn `pull` into a draft"),
        "merge": Key("flag", "merge `pull`"),
        "rerun": Key("flag", "run `run` again"),
        "cancel": Key("flag", "cancel `run`"),
        "finish": Key("text", "complete `run` with this conclusion"),
        "delete-run": Key("flag", "delete `run`"),
        "lose-runner": Key("flag", "take the machine away under `run`"),
        "dispatch": Key("text", "start this workflow file by hand"),
        "schedule": Key("text", "start this workflow file as its schedule would"),
        "advance": Key("number", "let so many hub seconds pass"),
        "permissions": Key("table", "change what the token of `by` may do"),
        "delete-ref": Key("text", "delete this ref (full name)"),
    },
)

HUMAN = Section(
    "human",
    "What happens between two calls of the verb.",
    {
        "before": Key("text", "before calls that match this `METHOD glob`"),
        "after": Key("text", "after the effect of calls that match this `METHOD glob`, before their answer"),
        "call": Key("number", "at which of the matching calls (default: the first)"),
        "do": Key(Many(DEED), "what is done, in order", required=True),
    },
)

SELF = Section(
    "self",
    "The run that the verb believes to be (GITHUB_RUN_ID and so on). It is made unless `runs` has it.",
    {
        "run": Key("number", "its run id"),
        "attempt": Key("number", "its attempt (default 1)"),
        "job": Key("text", "its job (default: the verb)"),
        "workflow": Key("text", "its workflow file (default `klaud-plan.yml`)"),
        "absent": Key("flag", "no such run exists on the hub: as when the token lost its rights"),
    },
)

VERB = Section(
    "verb",
    "Which klaud verb is run, and how.",
    {
        "name": Key("text", "the verb (default `recover`)"),
        "arguments": Key("names", "its arguments"),
        "token": Key("text", "the token it is given (default: the first)"),
        "env": Key("table", "more variables"),
        "seconds": Key("number", "how long it may take before it is killed (default 300)"),
        "wait": Key("number", "how long to wait afterwards for the runs that it started (default 60)"),
    },
)

SETTINGS = Section(
    "settings",
    "The hub's runners.",
    {
        "concurrent-jobs": Key("number", "runs in progress at once (default 2)"),
        "cancel-scale": Key("number", "stretches the waits between a cancelled job's signals (default 1)"),
        "job-limit": Key("number", "a job's time limit in hub seconds (default 21600)"),
    },
)

GENERATE = Section(
    "generate",
    "A big scene from a builder; what the scene itself says is added to it.",
    {
        "forerunner": Key("number", "the forerunner's mess, so many times over"),
        "others": Key("number", "open pull requests of other people"),
    },
)

SCENE = Section(
    "scene",
    "The whole file.",
    {
        "scene": Key((1,), "the version of the format", required=True),
        "title": Key("text", "what it is about"),
        "clock": Key(CLOCK, "the hub's time"),
        "repository": Key(REPOSITORY, "the repository"),
        "config": Key("any", "a mapping written as `.github/klaud.yml` of the first commit that has none"),
        "accounts": Key(Many(ACCOUNT), "who there is; the repository's owner is made where it is missing"),
        "tokens": Key(Many(TOKEN), "credentials"),
        "variables": Key("table", "the repository's variables"),
        "labels": Key(Many(LABEL, "name"), "the repository's labels; a plain text is a name"),
        "rulesets": Key(Many(RULESET), "rules for refs"),
        "commits": Key(
            Many(COMMIT), "commits; the default branch stands at the last one that `branches` does not name otherwise"
        ),
        "branches": Key("table", "branch -> commit name"),
        "refs": Key(Many(REF), "klaud's refs and their records"),
        "pulls": Key(Many(PULL), "pull requests"),
        "runs": Key(Many(RUN), "workflow runs"),
        "workflows": Key(Named(WORKFLOW), "what the runs of a workflow file do"),
        "feeds": Key(Named(FEED), "what feeds answer"),
        "faults": Key(Many(FAULT), "what goes wrong"),
        "humans": Key(Many(HUMAN), "what people do meanwhile"),
        "self": Key(SELF, "the run that the verb is"),
        "verb": Key(VERB, "the verb to run"),
        "settings": Key(SETTINGS, "the hub's runners"),
        "generate": Key(GENERATE, "a big scene from a builder"),
    },
)


def sections(root: Section = SCENE) -> Iterator[Section]:
    """Yield a section and all below it, each once, in the order in which they are met."""
    seen: set[str] = set()
    pending = [root]
    while pending:
        section = pending.pop(0)
        if section.name in seen:
            continue
        seen.add(section.name)
        yield section
        for key in section.keys.values():
            kind = key.kind.section if isinstance(key.kind, (Many, Named)) else key.kind
            if isinstance(kind, Section):
                pending.append(kind)


def kind_word(kind: Any) -> str:
    """Return a kind as the documentation says it."""
    if isinstance(kind, Section):
        return f"[{kind.name}](#{kind.name.replace(' ', '-')})"
    if isinstance(kind, Many):
        return f"list of {kind_word(kind.section)}"
    if isinstance(kind, Named):
        return f"name -> {kind_word(kind.section)}"
    if isinstance(kind, tuple):
        return " \\| ".join(f"`{word}`" for word in kind) if len(kind) <= 6 else "one of the words below"
    words = {"names": "list of texts", "table": "key -> text", "files": "path -> text", "any": "any value"}
    return words.get(kind, str(kind))
