"""Build the live objects of a verb: configuration, GitHub, the ref store, and who this process is.

The environment is read here and in ``klaud.config`` only. The token stays in this process: it is in no attribute that a
repr shows, in no argument list and in no URL.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from klaud import clock as clocks
from klaud import errors, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klaud import config as configs
    from klaud.github import app as apps
    from klaud.github import gateway as ports
    from klaud.github import rest
    from klaud.leases import model as records
    from klaud.leases import store as stores

CONFIG_PATH = ".github/klaud.yml"
GITHUB_API = "https://api.github.com"
GITHUB_SERVER = "https://github.com"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where this process runs and on which repository, as the environment says. ``me`` is None outside of Actions."""

    repository: str
    api_url: str
    server_url: str
    me: records.Holder | None
    wave: str
    token: str = dataclasses.field(repr=False)
    record_key: bytes | None = dataclasses.field(repr=False)
    app: tuple[str, str] | None = dataclasses.field(default=None, repr=False)
    """An app's id and private key, where these are given and no token is."""

    @property
    def git_url(self) -> str:
        """The repository's address for git over HTTP, without any credential."""
        return f"{self.server_url}/{self.repository}.git"

    @property
    def web_host(self) -> str:
        """The host in the addresses of runs (``https://<host>/<repository>/actions/runs/1``); loopback: github.com."""
        parts = urllib.parse.urlsplit(self.server_url)
        return "github.com" if _is_loopback(parts) else parts.netloc


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """Everything a verb acts with."""

    config: configs.Config
    place: Place
    clock: clocks.Clock
    names: names.RefNames
    gateway: rest.RestGateway
    refs: ports.RefStore
    store: stores.LeaseStore
    credential: str | apps.AppToken = dataclasses.field(default="", repr=False)

    @property
    def repository(self) -> str:
        """``owner/name``."""
        return self.place.repository

    @property
    def me(self) -> records.Holder | None:
        """This process as the holder of claims and leases; None outside of Actions."""
        return self.place.me


def place(environ: Mapping[str, str] | None = None) -> Place:
    """Read repository, addresses, run and token from the environment; InputError names what is missing or malformed."""
    from klaud.leases import model as records

    env = os.environ if environ is None else environ
    repository = env.get("GITHUB_REPOSITORY", "")
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise errors.InputError(
            f"GITHUB_REPOSITORY is {repository!r}: which repository to work on is not known",
            advice="Set GITHUB_REPOSITORY to owner/name (Actions does) and run the command again; nothing was written.",
        )
    token = env.get("KLAUD_TOKEN") or env.get("GITHUB_TOKEN", "")
    app = (env.get("KLAUD_APP_ID", ""), env.get("KLAUD_APP_KEY", ""))
    by_app = all(app) and not env.get("KLAUD_TOKEN")
    if not token and not by_app:
        raise errors.InputError(
            "neither KLAUD_TOKEN nor GITHUB_TOKEN is set: GitHub cannot be asked",
            advice="Hand in a token in KLAUD_TOKEN (a read-only one is enough for --report), or an app's id and key in "
            "KLAUD_APP_ID and KLAUD_APP_KEY; nothing was written.",
        )
    run, attempt = _number(env, "GITHUB_RUN_ID"), _number(env, "GITHUB_RUN_ATTEMPT") or 1
    me = None
    if run:
        me = records.Holder(run_id=run, attempt=attempt, job=env.get("GITHUB_JOB", ""), nonce=secrets.token_hex(8))
    key = env.get("KLAUD_RECORD_KEY", "")
    return Place(
        repository=repository,
        api_url=_address(env, "GITHUB_API_URL", GITHUB_API),
        server_url=_address(env, "GITHUB_SERVER_URL", GITHUB_SERVER),
        me=me,
        wave=f"{run}.{attempt}" if run else f"local-{secrets.token_hex(8)}",
        token="" if by_app else token,
        app=app if by_app else None,
        record_key=key.encode() if key else None,
    )


def config_path() -> Path:
    """Return where the configuration is: what KLAUD_CONFIG says, else ``.github/klaud.yml``."""
    return Path(os.environ.get("KLAUD_CONFIG", CONFIG_PATH))


def load_config(path: Path | None = None) -> configs.Config:
    """Load the configuration from ``path``, else from ``config_path``."""
    from klaud import config as configs

    return configs.load(path or config_path())


def credential(where: Place, clock: clocks.Clock) -> str | apps.AppToken:
    """Return what requests are signed with: a token, or an app that mints and renews one (nothing is sent yet)."""
    if where.app is None:
        return where.token
    from klaud.github import app as apps

    app_id, key = where.app
    return apps.AppToken(app_id=app_id, key=key, repository=where.repository, api_url=where.api_url, clock=clock)


def open_live(config_path: Path | None = None, *, clock: clocks.Clock | None = None) -> Live:
    """Load the configuration and build the live objects; nothing is sent yet."""
    from klaud.github import rest
    from klaud.leases import store as stores

    config = load_config(config_path)
    where = place()
    ticking = clock or clocks.SystemClock()
    secret = credential(where, ticking)
    ref_names = names.RefNames(config.refs_prefix)
    gateway = rest.RestGateway(repository=where.repository, token=secret, api_url=where.api_url, clock=ticking)
    refs = ref_store(config.refs_store, config, where, gateway, secret, ticking)
    return Live(
        config=config,
        place=where,
        clock=ticking,
        names=ref_names,
        credential=secret,
        gateway=gateway,
        refs=refs,
        store=stores.LeaseStore(
            refs=refs, names=ref_names, repository=where.repository, clock=ticking, key=where.record_key
        ),
    )


def ref_store(  # noqa: PLR0917 - the parts of one composition
    kind: Literal["git", "graphql"],
    config: configs.Config,
    where: Place,
    gateway: rest.RestGateway,
    secret: str | apps.AppToken,
    clock: clocks.Clock,
) -> ports.RefStore:
    """Build a ref store of either kind; nothing is sent yet."""
    from klaud.github import refs as git_refs

    identity = git_refs.Identity(*config.identity())
    if kind == "graphql":
        from klaud.github import graphql_refs

        return graphql_refs.GraphqlRefStore(hub=gateway, identity=identity, clock=clock)
    return git_refs.GitRefStore(url=where.git_url, token=secret, identity=identity, clock=clock)


def _number(env: Mapping[str, str], name: str) -> int | None:
    value = env.get(name, "")
    if not value:
        return None
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise errors.InputError(f"{name} is {value!r}: expected a positive number, as Actions sets it")
    return int(value)


def _address(env: Mapping[str, str], name: str, default: str) -> str:
    value = env.get(name) or default
    parts = urllib.parse.urlsplit(value)
    if parts.username or parts.scheme not in {"https", "http"} or (parts.scheme == "http" and not _is_loopback(parts)):
        raise errors.InputError(
            f"{name} is not an address klaud sends a token to: https, or http on this machine's loopback, without a user"
        )
    return value.rstrip("/")


def _is_loopback(parts: urllib.parse.SplitResult) -> bool:
    return parts.hostname in {"127.0.0.1", "localhost", "::1"}
