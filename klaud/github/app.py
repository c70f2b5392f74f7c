"""Tokens of a GitHub App's installation: minted with the app's key, renewed before their hour is over.

The key stays in this object; what it hands out is the installation token of one repository. PyGithub signs and asks. A token
is renewed ``RENEW_SECONDS`` before its end, by whichever request comes next. A renewal that nobody answers is tried again
(a token more does no harm); as long as the token at hand is good for ``SPARE_SECONDS``, it goes on serving meanwhile.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from typing import TYPE_CHECKING

import github
import jwt  # PyGithub's own: it signs with it
import requests

from klaud import errors
from klaud.github import retry

if TYPE_CHECKING:
    from klaud import clock as clocks

RENEW_SECONDS = 600
"""Before a token's end: longer than any one request, push or download takes."""

SPARE_SECONDS = 120
"""Before a token's end up to which it serves while renewals fail; also the seconds between two such renewals."""

TIMEOUT_SECONDS = 30
"""To connect, and between two bytes of an answer."""

POLICY = retry.Policy(tries=3, first_wait=2.0)
"""For a renewal that cannot wait: three tries in some seconds."""


class AppToken:
    """Call it for a token that is good for some minutes at least. Safe to share between threads."""

    def __init__(self, *, app_id: str, key: str, repository: str, api_url: str, clock: clocks.Clock) -> None:
        """``key``: the app's private key (PEM); ``repository``: ``owner/name``, where the app is installed."""
        self._owner, _, self._name = repository.partition("/")
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._until: datetime.datetime | None = None
        self._installation: int | None = None
        self._tried: datetime.datetime | None = None
        self._integration = github.GithubIntegration(
            auth=github.Auth.AppAuth(app_id, key.replace("\\n", "\n")),
            base_url=api_url.rstrip("/"),
            user_agent="klaud",
            timeout=TIMEOUT_SECONDS,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=None,
        )

    def __repr__(self) -> str:
        """Show nothing of key and token."""
        return f"AppToken({self._owner}/{self._name})"

    def __call__(self) -> str:
        """Return the token; ForbiddenError where the app or its key is refused, ReadFailedError where nobody answers."""
        with self._lock:
            now, spare = self._clock.now(), datetime.timedelta(seconds=SPARE_SECONDS)
            if self._until is None or now >= self._until - spare:
                retry.call(self._renew, policy=POLICY, clock=self._clock)
            elif now >= self._until - datetime.timedelta(seconds=RENEW_SECONDS) and self._due(now, spare):
                with contextlib.suppress(retry.Again):
                    self._renew()
            return self._token

    def _due(self, now: datetime.datetime, spare: datetime.timedelta) -> bool:
        """Tell whether an early renewal may be tried, and remember that it was."""
        if self._tried is not None and now < self._tried + spare:
            return False
        self._tried = now
        return True

    def close(self) -> None:
        """Close the connection."""
        self._integration.close()

    def _renew(self) -> None:
        try:
            if self._installation is None:
                self._installation = self._integration.get_repo_installation(self._owner, self._name).id
            made = self._integration.get_access_token(self._installation)
        except github.GithubException as error:
            message = f"GitHub gives the app no token for {self._owner}/{self._name} (HTTP {error.status})"
            if error.status in {401, 403, 404, 422}:
                advice = "Check KLAUD_APP_ID and KLAUD_APP_KEY, and that the app is installed on this repository."
                raise errors.ForbiddenError(message, advice=advice) from None
            raise retry.Again(errors.ReadFailedError(message)) from None
        except requests.RequestException as error:
            message = f"GitHub was not reached for the app's token: {type(error).__name__}"
            raise retry.Again(errors.ReadFailedError(message)) from None
        except (jwt.PyJWTError, ValueError, TypeError):
            message = "KLAUD_APP_KEY is not a private key that can sign"
            raise errors.ForbiddenError(message, advice="Put the app's whole PEM file into the secret.") from None
        self._token, self._until = made.token, made.expires_at


class RenewedAuth(github.Auth.Token):
    """PyGithub's idea of a token, asked anew for each request."""

    def __init__(self, source: AppToken) -> None:
        super().__init__("renewed")
        self._source = source

    @property
    def token(self) -> str:
        """The token as it is now."""
        return self._source()
