"""Who am I, who is that, which repository, how much may I still ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klaud.fakehub.call import Page, Problem, Reply, not_found
from klaud.fakehub.clock import stamp
from klaud.fakehub.render import Renderer

if TYPE_CHECKING:
    from klaud.fakehub.call import Call, Router

VARIABLE_EPOCH = "2020-01-01T00:00:00Z"


def own_account(call: Call) -> Any:
    """Answer ``GET /user``; a token of an app or a job has none."""
    if call.account is None:
        raise Problem(401, "Requires authentication")
    if call.kind != "pat":
        raise Problem(403, "Resource not accessible by integration")
    return Renderer(call).full_account(call.account)


def account(call: Call) -> Any:
    """Answer ``GET /users/{username}``."""
    found = call.state.account_of(login=call.params["username"])
    if found is None:
        raise not_found()
    return Renderer(call).full_account(found)


def account_by_id(call: Call) -> Any:
    """Answer ``GET /user/{account_id}``."""
    text = call.params["account_id"]
    found = call.state.account(int(text)) if text.isdigit() else None
    if found is None:
        raise not_found()
    return Renderer(call).full_account(found)


def repository(call: Call) -> Any:
    """Answer ``GET /repos/{owner}/{repo}``."""
    return Renderer(call).repository(call.repo)


def repository_permission(call: Call) -> Any:
    """Answer what role an account has on the repository."""
    found = call.state.account_of(login=call.params["username"])
    if found is None:
        raise not_found()
    words = {"maintain": "write", "triage": "read"}
    permission = words.get(found.role, found.role)
    if permission == "none" and not call.repo.private:
        permission = "read"
    user = Renderer(call).account(found) | {"permissions": {}, "role_name": found.role}
    return {"permission": permission, "role_name": permission if found.role == "none" else found.role, "user": user}


def rate_limit(call: Call) -> Any:
    """Answer ``GET /rate_limit``, which costs nothing."""
    core = call.hub.rates.peek(call, "core")
    graphql = call.hub.rates.peek(call, "graphql")
    search = {"limit": 30, "used": 0, "remaining": 30, "reset": core["reset"]}
    return {"resources": {"core": core, "graphql": graphql, "search": search}, "rate": core}


def repository_dispatch(call: Call) -> Any:
    """Answer ``POST /dispatches``."""
    fields = call.fields(("event_type", "client_payload"))
    call.hub.actions.fire(
        call.repo,
        "repository_dispatch",
        action=str(fields.get("event_type", "")),
        payload={"client_payload": fields.get("client_payload") or {}, "action": fields.get("event_type", "")},
        actor=call.actor,
        via=call.kind,
    )
    return Reply(204)


def _variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value, "created_at": VARIABLE_EPOCH, "updated_at": VARIABLE_EPOCH}


def variables(call: Call) -> Any:
    """Answer the repository's variables."""
    items = sorted(call.repo.variables.items())
    return Page(items, lambda item: _variable(*item), key="variables")


def variable(call: Call) -> Any:
    """Answer one variable."""
    name = call.params["name"].upper()
    if name not in call.repo.variables:
        raise not_found()
    return _variable(name, call.repo.variables[name])


def create_variable(call: Call) -> Any:
    """Add a variable."""
    fields = call.fields(("name", "value"))
    name = str(fields.get("name", "")).upper()
    if name in call.repo.variables:
        raise Problem(409, "Already exists - Variable already exists")
    call.repo.variables[name] = str(fields.get("value", ""))
    return Reply(201, {})


def update_variable(call: Call) -> Any:
    """Change a variable."""
    name = call.params["name"].upper()
    if name not in call.repo.variables:
        raise not_found()
    call.repo.variables[name] = str(call.fields(("value",)).get("value", ""))
    return Reply(204)


def delete_variable(call: Call) -> Any:
    """Delete a variable."""
    if call.repo.variables.pop(call.params["name"].upper(), None) is None:
        raise not_found()
    return Reply(204)


def root(call: Call) -> Any:
    """Answer ``GET /``: addresses of the API, of which clients read a few."""
    base = call.base_url
    return {
        "current_user_url": f"{base}/user",
        "repository_url": f"{base}/repos/{{owner}}/{{repo}}",
        "rate_limit_url": f"{base}/rate_limit",
    }


def meta(call: Call) -> Any:
    """Answer ``GET /meta``."""
    return {"verifiable_password_authentication": False, "installed_version": "hub", "now": stamp(call.now)}


def feed(call: Call) -> Any:
    """Answer ``/_feeds/NAME``: a candidate source or published rows, exactly as the scene gives it."""
    name = call.params["name"]
    if name not in call.state.feeds:
        raise not_found()
    given = call.state.feeds[name]
    if isinstance(given, bytes):
        return Reply(200, given, {"Content-Type": "application/json"})
    return Reply(200, given, {"Content-Type": "application/json"})


def add_routes(router: Router) -> None:
    """Add these routes to the table."""
    base = "/repos/{owner}/{repo}"
    router.route("GET", "/")(root)
    router.route("GET", "/meta")(meta)
    router.route("GET", "/user")(own_account)
    router.route("GET", "/user/{account_id}")(account_by_id)
    router.route("GET", "/users/{username}")(account)
    router.route("GET", "/rate_limit")(rate_limit)
    router.route("GET", base)(repository)
    router.route("GET", f"{base}/collaborators/{{username}}/permission")(repository_permission)
    router.route("POST", f"{base}/dispatches", permission="contents")(repository_dispatch)
    router.route("GET", f"{base}/actions/variables", permission="variables")(variables)
    router.route("POST", f"{base}/actions/variables", permission="variables")(create_variable)
    router.route("GET", f"{base}/actions/variables/{{name}}", permission="variables")(variable)
    router.route("PATCH", f"{base}/actions/variables/{{name}}", permission="variables")(update_variable)
    router.route("DELETE", f"{base}/actions/variables/{{name}}", permission="variables")(delete_variable)
    router.route("GET", "/_feeds/{name+}")(feed)
