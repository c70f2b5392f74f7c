"""The embedded GitHub: REST, GraphQL, git and Actions on 127.0.0.1, for the demo, for scenes and for tests.

It shares no code with klaud, so that it cannot share its bugs; see docs/scenes.md for what a scene can say.

    hub = fakehub.Hub(directory)
    bot = hub.add_account("klaud-bot", id=90001)
    hub.add_token("made-up", bot)
    hub.create_repository("acme/bench", files={"README.md": "hello"})
    with fakehub.serve(hub) as server:
        ...  # server.url is the API's base, server.git_url("acme/bench") the remote
"""

from klaud.fakehub.call import Reply
from klaud.fakehub.clock import HubClock
from klaud.fakehub.faults import Fault
from klaud.fakehub.hub import EVERYTHING, Hub, LogEntry, RefChange, Settings
from klaud.fakehub.jobs import Command, JobContext, Script, Step
from klaud.fakehub.server import Server, serve
from klaud.fakehub.state import Account, Issue, Repository, Run, Token

__all__ = [
    "EVERYTHING", "Account", "Command", "Fault", "Hub", "HubClock", "Issue", "JobContext", "LogEntry", "RefChange", "Reply",
    "Repository", "Run", "Script", "Server", "Settings", "Step", "Token", "serve",
]  # fmt: skip
