"""The hub's REST routes, by what they are about."""

from klaud.fakehub import graph
from klaud.fakehub.call import Router
from klaud.fakehub.routes import accounts, actions, git_data, issues, pulls, rules


def build_router() -> Router:
    """Return the table of all routes."""
    router = Router()
    for part in (accounts, git_data, issues, pulls, actions, rules, graph):
        part.add_routes(router)
    return router
