"""What a session is told, what bounds it, what its agent may ask, and what it may answer.

Texts that an agent wrote appear in ``ToolRequest`` only, each cut at a named length before anything looks at it; they
are rendered into pull requests (``render``) and never into a ref's record.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000_000)]
"""A whole number of things, from 0."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=100_000_000)]
"""A span of time in seconds."""

Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
"""A text that is not empty."""

Framework: TypeAlias = Literal["claude_sdk", "scripted", "claude_sdk_otf_encode", "pydantic_ai_otf_encode"]
Isolation: TypeAlias = Literal["required", "best-effort", "none"]
Blame: TypeAlias = Literal["none", "candidate", "capacity", "infrastructure", "baseline", "permission"]


class Brief(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the planner hands to one candidate run: the file ``candidate.json``. Holds no secret.

    ``benchmark`` names an entry of ``benchmarks:`` in the configuration. ``subject`` is the canonical text whose hash is
    in the candidate's id; ``change`` what the candidate source proposes, as key path -> new value (data, not an order).
    ``bundle`` is the digest of the frozen baseline's evidence bundle (``sha256:<hex>``), which lies beside this file as
    ``baseline-<candidate>.json``; ``claim`` the oid of the claim that the planner made for this candidate. ``targets``: what
    the family's matrix runs on, as the capacity provider names it.
    """

    version: int = 1
    kind: Literal["upgrade", "encode"] = "upgrade"
    wave: str
    candidate: str
    family: str
    base: str
    benchmark: str
    subject: str
    change: dict[str, Any] = {}
    bundle: str = ""
    claim: str = ""
    targets: tuple[str, ...] = ()


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """A part of the configuration: immutable, its keys written with hyphens."""


# -- what a benchmark says of its sessions


class ValueScope(Section, frozen=True, kw_only=True):
    """Values that an agent may change: ``keys`` are key paths (``*`` is one key) in YAML or JSON files named by globs."""

    files: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """Globs of the files, relative to the repository (``*`` does not cross ``/``, ``**`` does)."""
    keys: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
    """Key paths whose values may change, joined by dots, for example ``*.image``."""


class EditScope(Section, frozen=True, kw_only=True):
    """What an agent may change. Anything else is refused; ``.github/``, CODEOWNERS and klaud's own configuration always."""

    values: tuple[ValueScope, ...] = ()
    """Named values in named YAML or JSON files, compared as data."""
    files: tuple[Text, ...] = ()
    """Globs of other files that may be changed freely."""
    allow_executable: bool = False
    """Whether ``files`` may reach scripts, build files, containers; a person must then approve the first dispatch."""


class Evaluations(Section, frozen=True, kw_only=True):
    """Whether the final run's results must hold evaluations (what the output is worth) beside the measured points."""

    need: Literal["none", "required"] = "none"
    """``required``: without an evaluation for each group of frozen points nothing is ``validated``."""
    field: Text = "benchmark_type"
    """The field of a result row that tells an evaluation from a measured point (keys joined by dots)."""
    value: Text = "evaluation"
    """What that field holds in an evaluation."""
    by: tuple[Text, ...] = ()
    """Identity fields that make groups, beside those that tell families apart, for example ``isl``; each needs one."""


class Workflows(Section, frozen=True, kw_only=True):
    """The target repository's own CI, as a session uses it."""

    smoke: str = ""
    """Workflow file of the targeted check, started by ``workflow_dispatch`` on the branch. Empty: there is none."""
    smoke_inputs: dict[str, str] = {}
    """Its inputs; ``{family}``, ``{file}``, ``{key}`` and ``{marker}`` are filled in by klaud."""
    final: Text
    """Workflow file of the full benchmark that decides; it runs on ``pull_request: labeled``."""
    final_label: Text = "full-sweep"
    """The label that starts it. Exactly this one final-run label must be set for ``validated``."""
    other_final_labels: tuple[Text, ...] = ()
    """Labels that start it in another form; one of them beside ``final-label`` prevents ``validated``."""
    approval_label: str = ""
    """A label by which a person lets files that run be started; klaud takes it off after each push. Empty: never."""
    results_artifact: Text = "benchmark-results"
    """Name of the final run's artifact with ``results.json`` or ``results.jsonl``."""
    evaluations: Evaluations = Evaluations()
    """The evaluations that belong to a complete final run."""


# -- what bounds a session


class Budgets(Section, frozen=True, kw_only=True):
    """How often one session may have an outward effect. At zero left the tool is refused, with the reason."""

    drafts: Count = 1
    """Draft pull requests: a candidate is one draft."""
    pushes: Count = 20
    """Pushes of work: each may start runs on the target repository."""
    smoke_runs: Count = 6
    """Smoke runs dispatched: each takes an expensive runner."""
    final_runs: Count = 2
    """Final runs started: the full matrix is the most expensive thing a session can ask for."""
    repairs: Count = 5
    """Attempts reported as repairs after a failed run."""
    infrastructure_retries: Count = 2
    """Runs tried again because the infrastructure failed, not the candidate."""
    tokens: Count = 20_000_000
    """Model tokens, counted by klaud's proxy. A day's work of one session is far below."""
    dollars: Count = 50
    """US dollars of model use, counted by klaud's proxy. 0: no model call is forwarded."""


class Price(Section, frozen=True, kw_only=True):
    """What a model costs, in US dollars per million tokens. The defaults are those of the dearest model: cost is a bound."""

    input: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 15.0
    """Tokens sent to the model."""
    output: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 75.0
    """Tokens that the model wrote."""
    cache_write: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 18.75
    """Tokens sent and kept in the provider's cache."""
    cache_read: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 1.5
    """Tokens read from the provider's cache."""


class Policy(Section, frozen=True, kw_only=True):
    """How a session is driven and what bounds it. All spans are in seconds, on the monotonic clock, read when used."""

    framework: Framework = "claude_sdk"
    """How the agent is driven: ``claude_sdk`` needs the extra ``agent``, ``scripted`` nothing."""
    script: str = ""
    """For ``scripted``: a JSON file with the steps to take; empty for the built-in ones."""
    model: str = ""
    """Model that ``claude_sdk`` asks for; empty for the command line program's own default."""
    prices: dict[str, Price] = {}
    """Prices by the beginning of a model's name, the longest that fits; a model that is not here has the default price."""
    isolation: Isolation = "required"
    """``required`` refuses to start where the host cannot isolate the agent; ``best-effort`` says what was in force."""
    egress: tuple[Text, ...] = ()
    """Hosts that the agent may reach through klaud's proxy beside the model; none by default."""
    transcripts: Literal["none", "artifact"] = "none"
    """Whether the agent's transcript is kept for a continuation, redacted; ``artifact``: in private repositories only."""
    transcript_bytes: Count = 33_554_432
    """A transcript: one that is larger is not kept, and the continuation starts cold."""
    budgets: Budgets = Budgets()
    """How often a session may have each outward effect, and what the model may cost."""
    steps: Count = 500
    """Rounds of the agent with its model in one turn: a loop that makes no progress ends here."""
    entry_seconds: Seconds = 240.0
    """Start, hand-shake and parity probe of the agent: the SDK's own hand-shake limit of 60 s fires first."""
    turn_seconds: Seconds = 7200.0
    """One turn: the job's limit is six hours, and a session that needs longer parks."""
    silence_seconds: Seconds = 600.0
    """Silence of the agent while no tool call is open: then it is stalled."""
    own_tool_seconds: Seconds = 1800.0
    """One tool call of the agent's own: a command that hangs must not hold the session."""
    linger_seconds: Seconds = 30.0
    """From the agent's result to its end: agents are known to print their result and never exit."""
    teardown_step_seconds: Seconds = 10.0
    """One step of ending the agent: interrupt, terminate, kill."""
    teardown_seconds: Seconds = 30.0
    """All of ending the agent: the runner kills a cancelled job soon after."""
    wait_run_seconds: Seconds = 1200.0
    """Waiting for a run inside the session; longer, and the session parks."""
    poll_seconds: Seconds = 15.0
    """Between two looks at a run: each costs one request."""
    seen_seconds: Seconds = 30.0
    """How long a write of ours may take to become visible before it counts as not seen."""
    job_seconds: Seconds = 19_200.0
    """The job's limit minus 20 minutes (six hours minus forty minutes by default): then the session parks."""
    control_url: str = ""
    """Address of an HTTP control plane that hears heartbeats, turns and records; empty: git refs are the control plane."""
    heartbeat_seconds: Seconds = 60.0
    """Between two looks at claim, labels and pause switch while the agent works."""
    first_beat_seconds: Seconds = 5.0
    """How long the first heartbeat is waited for; it fails open."""
    release_seconds: Seconds = 5.0
    """How long a release waits for the beat in flight before it writes the last one."""
    line_bytes: Count = 1_048_576
    """One line of the agent's output; a longer one costs that record, not the session."""
    output_bytes: Count = 536_870_912
    """All of the agent's output in one turn: more is a runaway."""
    stderr_bytes: Count = 65_536
    """The end of the agent's stderr that is kept, redacted, for the log."""
    answer_characters: Count = 8000
    """One answer of a tool to the agent: an answer must not fill its context."""
    field_characters: Count = 700
    """One free-text field from the agent; the rest is cut."""
    push_files: Count = 100
    """Files that one candidate may change."""
    push_bytes: Count = 4_194_304
    """Bytes of one push (the bundle): a candidate changes values, not data sets."""
    push_commits: Count = 50
    """Commits of one push."""
    results_bytes: Count = 134_217_728
    """A results artifact, unpacked."""
    cool_down_hours: Count = 24
    """Hours from the end of an attempt until the next one, where the candidate is to blame."""


# -- what an agent may ask


ToolName: TypeAlias = Literal[
    "open_draft", "push_work", "dispatch_smoke", "start_final_run", "wait_for_run", "read_run", "report_attempt",
    "read_baseline", "check_capacity", "finish",
]  # fmt: skip


class OpenDraft(
    msgspec.Struct, frozen=True, kw_only=True, tag="open_draft", tag_field="tool", forbid_unknown_fields=True
):
    """Open the draft pull request of the pushed branch."""

    title: str
    summary: str = ""
    rationale: str = ""
    risks: str = ""


class PushWork(
    msgspec.Struct, frozen=True, kw_only=True, tag="push_work", tag_field="tool", forbid_unknown_fields=True
):
    """Push what is committed in the work tree."""

    summary: str = ""


class DispatchSmoke(
    msgspec.Struct, frozen=True, kw_only=True, tag="dispatch_smoke", tag_field="tool", forbid_unknown_fields=True
):
    """Start the targeted check on the pushed branch. ``retry``: why it is started again."""

    retry: Literal["none", "repair", "infrastructure"] = "none"


class StartFinalRun(
    msgspec.Struct, frozen=True, kw_only=True, tag="start_final_run", tag_field="tool", forbid_unknown_fields=True
):
    """Start the full benchmark; the session parks afterwards."""

    retry: Literal["none", "repair", "infrastructure"] = "none"


class WaitForRun(
    msgspec.Struct, frozen=True, kw_only=True, tag="wait_for_run", tag_field="tool", forbid_unknown_fields=True
):
    """Wait until one of the session's own runs is completed."""

    run_id: int


class ReadRun(msgspec.Struct, frozen=True, kw_only=True, tag="read_run", tag_field="tool", forbid_unknown_fields=True):
    """Read the state and the jobs of one of the session's own runs."""

    run_id: int


class ReportAttempt(
    msgspec.Struct, frozen=True, kw_only=True, tag="report_attempt", tag_field="tool", forbid_unknown_fields=True
):
    """Say what was tried. Kept for a continuation in closed words; the text goes to the draft only."""

    what: Literal["change", "repair", "smoke-run", "final-run", "analysis"]
    result: Literal["worked", "failed", "unclear"]
    run_id: int | None = None
    note: str = ""


class ReadBaseline(
    msgspec.Struct, frozen=True, kw_only=True, tag="read_baseline", tag_field="tool", forbid_unknown_fields=True
):
    """Read the frozen baseline of the family, a page of points at a time."""

    page: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class CheckCapacity(
    msgspec.Struct, frozen=True, kw_only=True, tag="check_capacity", tag_field="tool", forbid_unknown_fields=True
):
    """Ask whether the family's target has room."""


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag="finish", tag_field="tool", forbid_unknown_fields=True):
    """Say that there is nothing more to do. A claim, recorded; the outcome is computed from facts."""

    claim: Literal["done", "failed", "incompatible", "duplicate", "retired", "already-updated", "uncertain"]
    note: str = ""


ToolRequest: TypeAlias = (
    OpenDraft | PushWork | DispatchSmoke | StartFinalRun | WaitForRun | ReadRun | ReportAttempt | ReadBaseline
    | CheckCapacity | Finish
)  # fmt: skip


# -- what klaud answers

RefusalCode: TypeAlias = Literal[
    "claim-lost", "claim-unreadable", "handoff", "paused", "budget", "no-capacity", "capacity-unknown", "no-branch",
    "no-draft", "draft-exists", "draft-closed", "draft-touched", "nothing-committed", "not-a-descendant", "too-many-files",
    "too-many-commits", "too-big", "outside-scope", "not-readable", "needs-approval", "workflow-rights", "not-your-run",
    "no-workflow", "head-mismatch", "final-run-going", "rejected", "unclear", "bad-arguments", "parked", "not-permitted",
    "already-finished",
]  # fmt: skip


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that did not happen. ``text`` is a sentence the agent can act on; ``ends``: the session must end now."""

    code: RefusalCode
    text: str
    ends: bool = False


class Allowed(msgspec.Struct, frozen=True):
    """The guards found nothing against the call."""


ALLOWED = Allowed()


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a session has used so far, counted from its ledger (intents, whatever became of them)."""

    drafts: int = 0
    pushes: int = 0
    smoke_runs: int = 0
    final_runs: int = 0
    repairs: int = 0
    infrastructure_retries: int = 0


class Guards(msgspec.Struct, frozen=True, kw_only=True):
    """What was read right before a tool call acts. None is "could not be read", which refuses."""

    claim_ours: bool | None
    handoff: bool | None
    paused: bool
    spent: Spent
    capacity: Literal["free", "full", "unknown", "not-asked"] = "not-asked"


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back to the agent: bounded text; ``refused`` where it is a refusal."""

    text: str
    refused: RefusalCode | Literal[""] = ""


# -- how a turn ended

TurnStatus: TypeAlias = Literal["completed", "interrupted", "failed", "paused", "stalled"]
Fault: TypeAlias = Literal[
    "", "missing-program", "bad-version", "start", "handshake", "entry-timeout", "turn-timeout", "silent",
    "own-tool-timeout", "no-result", "empty-result", "agent-error", "crashed", "steps", "output-limit", "isolation",
    "authentication", "hermetic", "budget", "claim-lost", "handoff", "paused", "cancelled", "unheard", "job-limit",
]  # fmt: skip


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn used, as klaud counted it."""

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microdollars: int = 0


class TurnEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one turn of the agent ended. Never decides an outcome by itself.

    ``entered``: the hand-shake was completed. ``exit_status``: the agent's own, None where it had to be killed or never
    started. ``skipped_lines``: records refused by name (too long, not UTF-8, torn). ``left``: processes that outlived
    the teardown. ``seconds``: from start to the end of the teardown. ``code``: a closed word for why nothing was achieved,
    where the turn is not an agent's alone and knows better than its fault says.
    """

    status: TurnStatus
    fault: Fault = ""
    entered: bool = False
    results: int = 0
    exit_status: int | None = None
    agent_session: str = ""
    usage: Usage = Usage()
    skipped_lines: int = 0
    left: int = 0
    seconds: float = 0.0
    isolation: str = ""
    denied: dict[str, int] = {}
    code: str = ""
