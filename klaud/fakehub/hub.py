"""The hub: accounts, tokens, repositories, a clock, a log, and what happens between calls.

``Hub`` is the state and its rules; ``app.App`` speaks HTTP for it and ``server.serve`` puts that on a port. All changes of
state happen under ``hub.lock``. The hub promises GitHub's behaviour as far as its routes go and an error for everything
else; it promises no durability: its state lives in memory, its git objects under ``root``.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from klaud.fakehub import conversation
from klaud.fakehub.actions import Actions
from klaud.fakehub.call import Call, pattern_matches
from klaud.fakehub.clock import HubClock
from klaud.fakehub.faults import Faults
from klaud.fakehub.git import ZERO, GitStore, Person
from klaud.fakehub.rates import Rates
from klaud.fakehub.render import Renderer
from klaud.fakehub.state import Account, Label, Repository, State, Token, TokenKind

if TYPE_CHECKING:
    import datetime
    from pathlib import Path

    from klaud.fakehub.jobs import Handler
    from klaud.fakehub.state import Issue

LOG = logging.getLogger("klaud.fakehub")

EVERYTHING: Mapping[str, str] = dict.fromkeys(
    ("contents", "pull_requests", "actions", "workflows", "issues", "variables", "metadata"), "write"
)
"""The permissions of a token that may do everything."""

GHOST_EMAIL = "noreply@github.invalid"


@dataclasses.dataclass
class RefChange:
    """One ref update of a push, and what became of it: ``ok``, or git's reason."""

    ref: str
    old: str | None
    new: str | None
    result: str


@dataclasses.dataclass
class LogEntry:
    """One call as the hub saw it. ``fault`` names what was done to it on purpose."""

    number: int
    at: datetime.datetime
    method: str
    path: str
    query: str
    template: str
    account: str | None
    write: bool
    status: int = 0
    body: Any = None
    operation: str = ""
    updates: list[RefChange] = dataclasses.field(default_factory=list)
    fault: str = ""
    pid: int = 0

    @property
    def route(self) -> str:
        """Return method and template."""
        return f"{self.method} {self.template}"


When = int | str | Callable[[LogEntry], bool]
"""Which call: its number (from 1), a pattern ``METHOD glob``, or a predicate over its log entry."""


@dataclasses.dataclass
class Hook:
    """Something to do before or after certain calls."""

    when: When
    action: Callable[[LogEntry], None]
    times: int | None
    skip: int = 0
    seen: int = 0

    def due(self, entry: LogEntry) -> bool:
        """Tell whether this call is one of them; counts the calls that match."""
        if self.times is not None and self.times <= 0:
            return False
        if isinstance(self.when, int):
            hit = entry.number == self.when
        elif isinstance(self.when, str):
            hit = pattern_matches(self.when, entry.method, entry.path, entry.template)
        else:
            hit = self.when(entry)
        if not hit:
            return False
        self.seen += 1
        if self.seen <= self.skip:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclasses.dataclass
class Settings:
    """What a hub can be told about its runners.

    ``cancel_scale`` stretches the waits between a cancelled job's signals (0: none); ``job_limit_seconds`` is in the hub's
    time, six hours as on GitHub.
    """

    concurrent_jobs: int = 2
    cancel_scale: float = 1.0
    job_limit_seconds: float = 6 * 3600


class Hub:
    """An embedded GitHub. Close it (or use it as a context manager) to stop its jobs and close its files."""

    def __init__(self, root: Path, *, clock: HubClock | None = None, settings: Settings | None = None) -> None:
        """``root``: an existing or new directory for bare repositories, artifacts and job workspaces."""
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.clock = clock or HubClock()
        self.state = State()
        self.lock = threading.RLock()
        self.push_lock = threading.Lock()
        self.log: list[LogEntry] = []
        self.observers: list[Callable[[LogEntry, Any], None]] = []
        self.handlers: dict[str, Handler] = {}
        self._git: dict[str, GitStore] = {}
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        self._calls = 0
        self.rates = Rates()
        self.settings = settings or Settings()
        self.faults = Faults(self)
        self.client_pid = 0
        self.errors: list[str] = []
        self.actions = Actions(self)
        self.base_url = "http://127.0.0.1"

    def __enter__(self) -> Self:
        """Return the hub itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the hub."""
        self.close()

    def close(self) -> None:
        """Stop what runs, and close the repositories' files."""
        self.actions.runner.close()
        for store in self._git.values():
            store.close()
        self._git.clear()

    # -- who

    def add_account(
        self,
        login: str,
        *,
        id: int | None = None,  # noqa: A002 - GitHub's word
        type: str = "User",  # noqa: A002 - GitHub's word
        name: str = "",
        email: str = "",
        role: str = "none",
    ) -> Account:
        """Add an account. Its e-mail address is what ties commits to it (default: GitHub's noreply form)."""
        with self.lock:
            number = self.state.next_id("account", 1001) if id is None else id
            if number in self.state.accounts:
                msg = f"account id {number} is taken by {self.state.accounts[number].login}"
                raise ValueError(msg)
            address = email or f"{number}+{login}@users.noreply.github.com"
            account = Account(number, login, type, name or login, address, role)
            self.state.accounts[number] = account
            return account

    def add_token(
        self,
        value: str,
        account: Account | int | str,
        *,
        kind: TokenKind = "pat",
        permissions: Mapping[str, str] | None = None,
        repositories: Sequence[str] | None = None,
    ) -> Token:
        """Add a credential for an account (the record, its id or its login); by default it may do everything."""
        with self.lock:
            token = Token(
                value=value,
                account=self.account(account).id,
                kind=kind,
                permissions=dict(EVERYTHING if permissions is None else permissions),
                repositories=None if repositories is None else frozenset(repositories),
            )
            self.state.tokens[value] = token
            return token

    def account(self, who: Account | int | str) -> Account:
        """Return the account that a record, an id or a login names; KeyError where there is none."""
        if isinstance(who, Account):
            return who
        found = self.state.account(who) if isinstance(who, int) else self.state.account_of(login=who)
        if found is None:
            raise KeyError(who)
        return found

    # -- repositories

    def create_repository(
        self,
        full_name: str,
        *,
        files: Mapping[str, str | bytes] | None = None,
        default_branch: str = "main",
        private: bool = False,
        author: Account | int | str | None = None,
    ) -> Repository:
        """Make a repository; with ``files`` its default branch has one commit of them."""
        owner, _, name = full_name.partition("/")
        with self.lock:
            if self.state.account_of(login=owner) is None:
                self.add_account(owner, type="Organization")
            number = self.state.next_id("repository", 5001)
            path = self.root / "git" / owner / f"{name}.git"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._git[full_name] = GitStore(path, default_branch)
            repository = Repository(
                id=number,
                owner=owner,
                name=name,
                git_path=path,
                created_at=self.clock.now(),
                default_branch=default_branch,
                private=private,
            )
            self.state.repositories[full_name] = repository
            if files is not None:
                self.commit(full_name, default_branch, files, message="Initial commit", author=author)
            return repository

    def git(self, full_name: str) -> GitStore:
        """Return a repository's git store."""
        return self._git[full_name]

    def repository(self, full_name: str) -> Repository:
        """Return a repository; KeyError where there is none."""
        return self.state.repositories[full_name]

    def person(self, who: Account | int | str | None, date: datetime.datetime | None = None) -> Person:
        """Return an account as the author of a commit (None: an address that is no account's)."""
        moment = date or self.clock.now()
        if who is None:
            return Person("Somebody", GHOST_EMAIL, moment)
        account = self.account(who)
        return Person(account.name, account.email, moment)

    def commit(
        self,
        full_name: str,
        branch: str | None,
        files: Mapping[str, str | bytes | None],
        *,
        message: str = "Change",
        author: Account | int | str | Person | None = None,
        committer: Account | int | str | Person | None = None,
        parent: str | None = None,
    ) -> str:
        """Commit files (None deletes one) and return the oid; move ``branch`` there where it is given.

        ``parent``: the commit to build on (default: the branch's head, else the default branch's). Moves the ref as a
        person with git would, without starting workflows or touching pull requests: use ``push`` for that.
        """
        git = self.git(full_name)
        with self.lock:
            ref = f"refs/heads/{branch}"
            at = git.ref(ref) if branch else None
            base = parent or at or git.ref(f"refs/heads/{self.repository(full_name).default_branch}")
            info = git.commit(base) if base else None
            written = {
                path: data.encode() if isinstance(data, str) else data
                for path, data in files.items()
                if data is not None
            }
            tree = git.write_tree(
                written,
                base_tree=info.tree if info else None,
                deleted=[path for path, data in files.items() if data is None],
            )
            by = author if isinstance(author, Person) else self.person(author)
            second = committer if isinstance(committer, Person) or committer is None else self.person(committer)
            oid = git.write_commit(
                tree=tree, parents=[base] if base else [], message=message, author=by, committer=second
            )
            if branch:
                git.set_refs({ref: oid})
            return oid

    def label(self, repository: Repository, name: str) -> Label:
        """Return the repository's label of this name, made where it is not there."""
        if name not in repository.labels:
            repository.labels[name] = Label(self.state.next_id("label", 7001), name)
        return repository.labels[name]

    # -- what follows from a change

    def pushed(self, repository: Repository, changes: Sequence[RefChange], account: Account | None, via: str) -> None:
        """Follow up on refs that changed: pull requests first, then workflows. ``via``: the kind of token that pushed."""
        actor = account.id if account else None
        with self.lock:
            for change in changes:
                if change.result != "ok" or change.old == change.new:
                    continue
                if change.ref.startswith("refs/heads/"):
                    branch = change.ref.removeprefix("refs/heads/")
                    conversation.head_moved(self, repository, branch, change.old, change.new, actor=actor, via=via)
                    if change.new is not None:
                        conversation.base_moved(self, repository, branch, change.new, actor=actor)
                if change.ref.startswith(("refs/heads/", "refs/tags/")) and change.new is not None:
                    payload = {"ref": change.ref, "before": change.old or ZERO, "after": change.new}
                    self.actions.fire(
                        repository,
                        "push",
                        action="",
                        payload=payload,
                        ref=change.ref,
                        oid=change.new,
                        actor=actor,
                        via=via,
                    )

    def push(self, full_name: str, branch: str, oid: str | None, *, actor: Account | int | str | None = None) -> None:
        """Move (or with None delete) a branch as a push by ``actor`` would, with all that follows."""
        with self.lock:
            git = self.git(full_name)
            ref = f"refs/heads/{branch}"
            old = git.ref(ref)
            git.set_refs({ref: oid})
            account = None if actor is None else self.account(actor)
            self.pushed(self.repository(full_name), [RefChange(ref, old, oid, "ok")], account, "pat")

    def fire_pull(
        self, repository: Repository, issue: Issue, action: str, actor: int | None, via: str, **details: Any
    ) -> None:
        """Start the workflows that listen to a pull request's event."""
        if issue.pull is None:
            return
        self.actions.fire(
            repository,
            "pull_request",
            action=action,
            payload={"action": action, "number": issue.number, **details},
            issue=issue,
            actor=actor,
            via=via,
        )

    # -- calls

    def before_call(
        self, when: When, action: Callable[[LogEntry], None], *, times: int | None = 1, skip: int = 0
    ) -> None:
        """Run ``action`` before the calls that ``when`` names: at most ``times`` (None: each), after ``skip`` of them."""
        with self.lock:
            self._before.append(Hook(when, action, times, skip))

    def after_call(
        self, when: When, action: Callable[[LogEntry], None], *, times: int | None = 1, skip: int = 0
    ) -> None:
        """Run ``action`` after the effect of the calls that ``when`` names, before their answer is sent."""
        with self.lock:
            self._after.append(Hook(when, action, times, skip))

    def begin(self, entry: LogEntry) -> None:
        """Give a call its number, log it, and run what is to happen before it."""
        with self.lock:
            self._calls += 1
            entry.number = self._calls
            self.log.append(entry)
            due = [hook for hook in self._before if hook.due(entry)]
        for hook in due:
            hook.action(entry)

    def end(self, entry: LogEntry, answer: Any) -> None:
        """Run what is to happen after a call."""
        with self.lock:
            due = [hook for hook in self._after if hook.due(entry)]
        for hook in due:
            hook.action(entry)
        for observer in self.observers:
            observer(entry, answer)

    def requests(self, *, account: str | None = None, since: int = 0) -> Counter[str]:
        """Return the number of calls by route, of one account or of all, numbered above ``since``."""
        with self.lock:
            return Counter(
                entry.route
                for entry in self.log
                if entry.number > since and (account is None or entry.account == account)
            )

    def writes(self, *, since: int = 0) -> list[LogEntry]:
        """Return the calls that wrote (or tried to), in order."""
        with self.lock:
            return [entry for entry in self.log if entry.write and entry.number > since]

    def tick(self) -> None:
        """Let the hub's time pass: move what is due by now."""
        with self.lock:
            self.actions.tick()

    def advance(self, seconds: float) -> None:
        """Move the hub's clock forward, and what is due by then."""
        self.clock.advance(seconds)
        self.tick()

    def wait_for_runs(self, seconds: float = 60) -> bool:
        """Wait until no run with a handler is in progress or about to start; False where that took too long."""
        return self.actions.runner.wait(seconds)

    def renderer(self) -> Renderer:
        """Return a renderer of GitHub's objects for nobody in particular (event payloads)."""
        call = Call(
            hub=self, state=self.state, number=0, method="GET", path="/", query={}, headers={}, body=None,
            now=self.clock.now(), base_url=self.base_url,
        )  # fmt: skip
        return Renderer(call)
