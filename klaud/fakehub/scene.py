"""Builds a hub from a scene.

The checked mapping is built in one go: accounts, commits, refs, pull requests, runs, faults, people. A name that nothing
in the scene has is a ``SceneError`` with the place and the nearest known name, before anything is served.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
from typing import TYPE_CHECKING, Any

from klaud.fakehub import deeds, scene_runs
from klaud.fakehub.clock import HubClock
from klaud.fakehub.git import EMPTY_TREE, Person, make_commit
from klaud.fakehub.hub import Hub, Settings
from klaud.fakehub.jobs import Command, Script, Step
from klaud.fakehub.scene_text import SceneError, moment, nearest, read
from klaud.fakehub.state import Comment, Event, Issue, PullPart, Review, Ruleset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import dulwich.objects

    from klaud.fakehub.git import GitStore
    from klaud.fakehub.jobs import Handler
    from klaud.fakehub.state import Repository

Data = dict[str, Any]

DEFAULT_NAME = "acme/bench"
PLANNER = "klaud-plan.yml"


@dataclasses.dataclass
class Scene:
    """A checked scene. ``directory``: beside which its files lie."""

    data: Data
    directory: Path | None = None

    @property
    def title(self) -> str:
        """Return what the scene is about."""
        return str(self.data.get("title", ""))

    @property
    def repository(self) -> str:
        """Return the repository's full name."""
        return str(self.data.get("repository", {}).get("name", DEFAULT_NAME))


def load(path: Path) -> Scene:
    """Read and check a scene file, and build it once in thought: SceneError where it cannot be."""
    try:
        text = path.read_text()
    except OSError as error:
        raise SceneError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SceneError(f"{path}: cannot be read: not UTF-8 (byte {error.start})") from error
    data = read(text, str(path))
    generate = data.get("generate")
    if generate:
        from klaud.fakehub import scenes  # noqa: PLC0415 - builders use this module

        data = scenes.generated(
            data, forerunner=int(generate.get("forerunner", 0)), others=int(generate.get("others", 0))
        )
    return Scene(data, path.parent)


def build(scene: Scene, root: Path) -> Hub:
    """Return a hub in the state that the scene says. Close it."""
    data = scene.data
    spec = data.get("clock", {})
    start = moment(spec["start"], datetime.datetime.now(datetime.UTC), "clock.start") if "start" in spec else None
    given = data.get("settings", {})
    settings = Settings(
        concurrent_jobs=int(given.get("concurrent-jobs", 2)),
        cancel_scale=float(given.get("cancel-scale", 1)),
        job_limit_seconds=float(given.get("job-limit", 6 * 3600)),
    )
    hub = Hub(root, clock=HubClock(start, float(spec.get("rate", 1))), settings=settings)
    try:
        Builder(hub, scene).build()
    except BaseException:
        hub.close()
        raise
    return hub


class Builder:
    """Builds one scene into one hub."""

    def __init__(self, hub: Hub, scene: Scene) -> None:
        """Fill ``hub``, which is empty."""
        self.hub = hub
        self.scene = scene
        self.data = scene.data
        self.start = hub.clock.start
        self.commits: dict[str, str] = {}
        self.refs: dict[str, str | None] = {}
        self.pending: list[dulwich.objects.Commit] = []

    @property
    def repository(self) -> Repository:
        """Return the repository."""
        return self.hub.repository(self.scene.repository)

    @property
    def git(self) -> GitStore:
        """Return its git store."""
        return self.hub.git(self.scene.repository)

    def at(self, value: Any, path: str, default: datetime.datetime | None = None) -> datetime.datetime:
        """Return a time of the scene."""
        return (default or self.start) if value is None else moment(value, self.start, path)

    def who(self, login: str | None, path: str) -> int | None:
        """Return the account id of a login; None stays None (a deleted account)."""
        if login is None:
            return None
        found = self.hub.state.account_of(login=login)
        if found is None:
            known = [account.login for account in self.hub.state.accounts.values()]
            raise SceneError(f"{path}: no account has the login {login!r}{nearest(login, known)}")
        return found.id

    def commit_of(self, name: str, path: str) -> str:
        """Return the oid that a commit's or branch's name means."""
        oid = self.commits.get(name) or self.refs.get(f"refs/heads/{name}") or self.refs.get(name)
        if oid is None and self.git.commit(name) is not None:
            oid = name
        if oid is None:
            known = [*self.commits, *(ref.removeprefix("refs/heads/") for ref in self.refs)]
            raise SceneError(f"{path}: no commit or branch is named {name!r}{nearest(name, known)}")
        return oid

    def build(self) -> None:
        """Build everything, in the order in which one thing needs another."""
        self._repository()
        self._accounts()
        self._commits()
        self._refs()
        self.git.write_commits(self.pending)
        self.git.set_refs(self.refs)
        self._pulls()
        self._workflows()
        runs = scene_runs.RunBuilder(self)
        runs.build(self.data.get("runs", ()))
        runs.build_self(self.data.get("self", {}))
        for index, fault in enumerate(self.data.get("faults", ())):
            self._fault(fault, f"faults[{index}]")
        for index, human in enumerate(self.data.get("humans", ())):
            self._human(human, f"humans[{index}]")

    # -- people and repository

    def _repository(self) -> None:
        spec = self.data.get("repository", {})
        owner = self.scene.repository.partition("/")[0]
        logins = {str(account["login"]).lower() for account in self.data.get("accounts", ())}
        if self.scene.repository.count("/") != 1:
            raise SceneError(f"repository.name: {self.scene.repository!r} is not owner/name")
        if owner.lower() not in logins:
            self.hub.add_account(owner, id=1000, type="Organization", role="admin")
        for index, account in enumerate(self.data.get("accounts", ())):
            try:
                self.hub.add_account(
                    account["login"],
                    id=account.get("id"),
                    type=account.get("type", "User"),
                    role=account.get("role", "none"),
                    name=account.get("name", ""),
                    email=account.get("email", ""),
                )
            except ValueError as error:
                raise SceneError(f"accounts[{index}]: {error}") from error
        repository = self.hub.create_repository(
            self.scene.repository,
            default_branch=spec.get("default-branch", "main"),
            private=spec.get("private", False),
        )
        repository.drafts = spec.get("drafts", True)
        repository.created_at = self.start - datetime.timedelta(days=365)
        repository.variables |= {name.upper(): str(value) for name, value in self.data.get("variables", {}).items()}
        for label in self.data.get("labels", ()):
            given = {"name": label} if isinstance(label, str) else label
            made = self.hub.label(repository, given["name"])
            made.color, made.description = given.get("color", made.color), given.get("description")
        for number, given in enumerate(self.data.get("rulesets", ()), 1):
            rules = given["rules"]
            if not isinstance(rules, list) or not all(isinstance(one, dict) and "type" in one for one in rules):
                raise SceneError(f"rulesets[{number - 1}].rules: a list of mappings with a type is wanted")
            repository.rulesets.append(Ruleset(number, **given))
        for name, feed in self.data.get("feeds", {}).items():
            self.hub.state.feeds[name] = self._feed(feed, f"feeds.{name}")

    def _feed(self, feed: Data, path: str) -> Any:
        if "json" in feed:
            return json.dumps(feed["json"]).encode()
        if "text" in feed:
            return str(feed["text"]).encode()
        return self._beside(feed["file"], path).read_bytes()

    def _beside(self, name: str, path: str) -> Path:
        if self.scene.directory is None:
            raise SceneError(f"{path}: a generated scene has no files beside it")
        place = self.scene.directory / name
        if not place.exists():
            raise SceneError(f"{path}: {name} is not beside the scene")
        return place

    def _accounts(self) -> None:
        for index, token in enumerate(self.data.get("tokens", ())):
            path = f"tokens[{index}]"
            account = self.who(token["account"], f"{path}.account")
            permissions = token.get("permissions")
            for name in permissions or {}:
                if name not in deeds.EVERYTHING:
                    raise SceneError(f"{path}.permissions.{name}: unknown permission{nearest(name, deeds.EVERYTHING)}")
                if permissions[name] not in ("read", "write", "none"):
                    raise SceneError(f"{path}.permissions.{name}: expected read, write or none")
            self.hub.add_token(token["value"], account or 0, kind=token.get("kind", "pat"), permissions=permissions)

    # -- git

    def person(self, login: str | None, date: datetime.datetime, path: str, email: str = "") -> Person:
        """Return an author or committer."""
        account = self.who(login, path)
        person = self.hub.person(account, date)
        return dataclasses.replace(person, email=email) if email else person

    def _commits(self) -> None:
        previous: str | None = None
        main = f"refs/heads/{self.repository.default_branch}"
        for index, spec in enumerate(self.data.get("commits", ())):
            path = f"commits[{index}]"
            files = dict(spec.get("files", {}))
            if "from" in spec:
                base = self._beside(spec["from"], f"{path}.from")
                files = {
                    place.relative_to(base).as_posix(): place.read_text()
                    for place in sorted(base.rglob("*"))
                    if place.is_file() and "__pycache__" not in place.parts
                } | files
            if previous is None and "config" in self.data and ".github/klaud.yml" not in files:
                files[".github/klaud.yml"] = json.dumps(self.data["config"], indent=1)
            parents = [self.commit_of(name, f"{path}.parents") for name in spec.get("parents", ())]
            if "parent" in spec:
                parents = [self.commit_of(spec["parent"], f"{path}.parent")]
            elif not parents and previous is not None:
                parents = [previous]
            date = self.at(spec.get("date"), f"{path}.date")
            author = self.person(spec.get("author"), date, f"{path}.author", spec.get("author-email", ""))
            committer = self.person(spec["committer"], date, f"{path}.committer") if "committer" in spec else author
            for step in range(int(spec.get("count", 1))):
                info = self.git.commit(parents[0]) if parents else None
                tree = self.git.write_tree(
                    {name: text.encode() for name, text in files.items() if text is not None},
                    base_tree=info.tree if info else None,
                    deleted=[name for name, text in files.items() if text is None],
                )
                message = spec.get("message", spec["name"]) + (f" {step}" if step else "")
                oid = self.git.write_commit(
                    tree=tree, parents=parents, message=message, author=author, committer=committer
                )
                parents = [oid]
            self.commits[spec["name"]] = previous = parents[0]
            if "parent" not in spec and "parents" not in spec:
                self.refs[main] = previous
        for branch, name in self.data.get("branches", {}).items():
            self.refs[f"refs/heads/{branch}"] = self.commit_of(str(name), f"branches.{branch}")
        if main not in self.refs:
            person = Person("Scene", "scene@example.invalid", self.start)
            config = self.data.get("config")
            tree = (
                self.git.write_tree({".github/klaud.yml": json.dumps(config, indent=1).encode()})
                if config
                else EMPTY_TREE
            )
            self.refs[main] = self.git.write_commit(tree=tree, parents=[], message="Empty", author=person)

    def _record(self, text: str, parents: Sequence[str], author: Person) -> str:
        commit = make_commit(tree=EMPTY_TREE, parents=parents, message=text, author=author)
        self.pending.append(commit)
        return commit.id.decode()

    def _refs(self) -> None:
        for index, spec in enumerate(self.data.get("refs", ())):
            path = f"refs[{index}]"
            forms = [form for form in ("record", "records", "text", "commit") if form in spec]
            if len(forms) != 1:
                raise SceneError(f"{path}: exactly one of record, records, text, commit is expected")
            author = self.person(spec.get("author"), self.at(spec.get("date"), f"{path}.date"), f"{path}.author")
            if "commit" in spec:
                oid = self.commit_of(spec["commit"], f"{path}.commit")
                self.refs[self._ref_name(spec["ref"], oid, path)] = oid
                continue
            texts = (
                [spec["text"]]
                if "text" in spec
                else [json.dumps(one) for one in spec.get("records", [spec.get("record")])]
            )
            oid = ""
            for text in texts:
                oid = self._record(self.filled(text), [oid] if oid else [], author)
            self.refs[self._ref_name(spec["ref"], oid, path)] = oid

    def _ref_name(self, text: str, oid: str, path: str) -> str:
        """Return a ref's full name; ``<oid>`` in it stands for what it points at (archive copies are named so)."""
        name = text.replace("<oid>", oid)
        if not self.git.valid_ref_name(name) or not name.startswith("refs/"):
            raise SceneError(f"{path}.ref: {text!r} is no full ref name")
        return name

    def filled(self, text: str) -> str:
        """Return a record's text with ``<commit:NAME>`` replaced by that commit's oid."""
        parts = text.split("<commit:")
        done = parts[0]
        for part in parts[1:]:
            name, _, rest = part.partition(">")
            done += self.commit_of(name, "refs") + rest
        return done

    # -- pull requests

    def _pulls(self) -> None:
        heads: dict[str, str | None] = {}
        for index, spec in enumerate(self.data.get("pulls", ())):
            issue = self._pull(spec, f"pulls[{index}]")
            if issue.pull is not None:
                heads[f"refs/pull/{issue.number}/head"] = issue.pull.head_oid
        self.git.set_refs(heads)
        numbers = [*self.repository.issues, 0]
        self.repository.next_number = max(numbers) + 1

    def _pull(self, spec: Data, path: str) -> Issue:
        repository = self.repository
        number = int(spec.get("number", max([*repository.issues, 0]) + 1))
        if number in repository.issues:
            raise SceneError(f"{path}.number: {number} stands twice")
        base = spec.get("base", repository.default_branch)
        base_oid = self.commit_of(spec.get("base-commit") or base, f"{path}.base")
        head_oid = self.commit_of(spec.get("head-commit") or spec["head"], f"{path}.head")
        created = self.at(spec.get("created"), f"{path}.created")
        state = spec.get("state", "open")
        closed = None if state == "open" else self.at(spec.get("closed"), f"{path}.closed")
        closer = self.who(spec.get("closed-by"), f"{path}.closed-by")
        part = PullPart(
            head_ref=spec["head"],
            head_oid=head_oid,
            head_repository=spec.get("head-repository", repository.full_name),
            base_ref=base,
            base_oid=base_oid,
            draft=spec.get("draft", False),
            merged_at=closed if state == "merged" else None,
            merged_by=closer if state == "merged" else None,
            merge_oid=base_oid if state == "merged" else None,
            mergeable=spec.get("mergeable", "MERGEABLE"),
            commits_told=int(spec["commits-told"]) if "commits-told" in spec else None,
        )
        issue = Issue(
            number=number,
            id=self.hub.state.next_id("issue", 3001),
            title=spec.get("title") or spec["head"],
            body=spec.get("body", ""),
            user=self.who(spec["author"], f"{path}.author"),
            created_at=created,
            updated_at=created,
            state="open" if state == "open" else "closed",
            closed_at=closed,
            closed_by=closer,
            labels=[self.hub.label(repository, name).name for name in spec.get("labels", ())],
            assignees=[
                one for login in spec.get("assignees", ()) if (one := self.who(login, f"{path}.assignees")) is not None
            ],
            edited_at=self.at(spec["edited"], f"{path}.edited") if "edited" in spec else None,
            editor=self.who(spec.get("edited-by"), f"{path}.edited-by"),
            pull=part,
        )
        repository.issues[number] = issue
        for index, event in enumerate(spec.get("events", ())):
            issue.events.append(self._event(event, f"{path}.events[{index}]"))
        for index, one in enumerate(spec.get("comments", ())):
            where = f"{path}.comments[{index}]"
            at = self.at(one.get("at"), f"{where}.at")
            user = self.who(one["by"], f"{where}.by")
            issue.comments.append(Comment(self.hub.state.next_id("comment", 600001), user, one["body"], at, at))
        for index, one in enumerate(spec.get("reviews", ())):
            where = f"{path}.reviews[{index}]"
            at, user = self.at(one.get("at"), f"{where}.at"), self.who(one["by"], f"{where}.by")
            number = self.hub.state.next_id("review", 700001)
            part.reviews.append(Review(number, user, one["state"], one.get("body", ""), at, head_oid))
        moments = [
            created,
            *(event.created_at for event in issue.events),
            *(made.created_at for made in issue.comments),
        ]
        moments += [made.submitted_at for made in part.reviews] + ([closed] if closed else [])
        issue.updated_at = self.at(spec.get("updated"), f"{path}.updated", max(moments))
        return issue

    def _event(self, spec: Data, path: str) -> Event:
        data: Data = {}
        if "label" in spec:
            label = self.hub.label(self.repository, spec["label"])
            data["label"] = {"name": label.name, "color": label.color}
        if "from" in spec or "to" in spec:
            data["rename"] = {"from": spec.get("from", ""), "to": spec.get("to", "")}
        if "assignee" in spec:
            data["assignee"] = self.who(spec["assignee"], f"{path}.assignee")
        for key, name in (("before", "before"), ("commit", "commit_id")):
            if key in spec:
                data[name] = self.commit_of(spec[key], f"{path}.{key}")
        number = self.hub.state.next_id("event", 800001)
        return Event(
            number, spec["event"], self.who(spec["by"], f"{path}.by"), self.at(spec.get("at"), f"{path}.at"), data
        )

    # -- what happens

    def _workflows(self) -> None:
        self.hub.actions.register(self.repository)
        for file, spec in self.data.get("workflows", {}).items():
            workflow = self.hub.actions.workflow(self.repository, f".github/workflows/{file}")
            workflow.state = spec.get("state", "active")
            handler = self._handler(spec, f"workflows.{file}")
            if handler is not None:
                self.hub.handlers[file] = handler

    def _handler(self, spec: Data, path: str) -> Handler | None:
        forms = [form for form in ("steps", "command", "jobs") if form in spec]
        if len(forms) > 1:
            raise SceneError(f"{path}: {' and '.join(forms)} exclude each other")
        if "steps" in spec:
            steps = tuple(Step(float(one["after"]), one["status"], one.get("conclusion")) for one in spec["steps"])
            return Script(steps, spec.get("artifacts", {}))
        if "command" in spec:
            return self._command(spec, path)
        if "jobs" in spec:
            return {key: self._command(one, f"{path}.jobs.{key}") for key, one in spec["jobs"].items()}
        return None

    def _command(self, spec: Data, path: str) -> Command:
        token = spec.get("token", "")
        if token and token not in self.hub.state.tokens:
            raise SceneError(f"{path}.token: no such token{nearest(token, self.hub.state.tokens)}")
        return Command(
            argv=tuple(part.replace("{python}", sys.executable) for part in spec["command"]),
            env={name: str(value) for name, value in spec.get("env", {}).items()},
            token=token,
            checkout=spec.get("checkout", False),
            artifacts=spec.get("artifacts", {}) if isinstance(spec.get("artifacts"), dict) else {},
        )

    def _fault(self, spec: Data, path: str) -> None:
        fields = {key: value for key, value in spec.items() if key not in ("match", "kind")}
        if "account" in fields:
            self.who(fields["account"], f"{path}.account")
        for key in ("times", "skip", "status", "rows", "total"):
            if fields.get(key) is not None:
                fields[key] = int(fields[key])
        self.hub.faults.add(spec["match"], spec["kind"], **fields)

    def _human(self, spec: Data, path: str) -> None:
        sides = [side for side in ("before", "after") if side in spec]
        if len(sides) != 1:
            raise SceneError(f"{path}: exactly one of before, after is expected")
        for index, deed in enumerate(spec["do"]):
            deeds.check(self, deed, f"{path}.do[{index}]")

        def act(_entry: Any) -> None:
            for index, deed in enumerate(spec["do"]):
                deeds.do(self.hub, self.repository, deed, f"{path}.do[{index}]")

        add = self.hub.before_call if sides[0] == "before" else self.hub.after_call
        add(spec[sides[0]], act, skip=int(spec.get("call", 1)) - 1)


def environment(scene: Scene, hub: Hub, verb: str) -> Mapping[str, str]:
    """Return the variables that a klaud verb is given in this scene, the token included."""
    own = scene.data.get("self", {})
    spec = scene.data.get("verb", {})
    tokens = scene.data.get("tokens", ())
    value = spec.get("token") or (tokens[0]["value"] if tokens else "")
    if value and value not in hub.state.tokens:
        raise SceneError(f"verb.token: no such token{nearest(value, hub.state.tokens)}")
    base = hub.base_url
    found = {
        "GITHUB_REPOSITORY": scene.repository,
        "GITHUB_API_URL": base,
        "GITHUB_SERVER_URL": base,
        "GITHUB_GRAPHQL_URL": f"{base}/graphql",
        "KLAUD_TOKEN": value,
    }
    if "run" in own:
        found |= {
            "GITHUB_RUN_ID": str(int(own["run"])),
            "GITHUB_RUN_ATTEMPT": str(int(own.get("attempt", 1))),
            "GITHUB_JOB": own.get("job", verb),
        }
    return found | {name: str(value) for name, value in spec.get("env", {}).items()}
