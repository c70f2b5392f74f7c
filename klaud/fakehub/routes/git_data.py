"""Refs, git objects, branches, commits, comparisons and file contents."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from klaud.fakehub import refs
from klaud.fakehub.call import Page, Problem, Reply, not_found
from klaud.fakehub.git import GitError, Person
from klaud.fakehub.render import Renderer

if TYPE_CHECKING:
    from klaud.fakehub.call import Call, Router
    from klaud.fakehub.state import PullPart

CONTENT_LIMIT = 1024 * 1024
"""Bytes of a file above which the contents route serves no text, as on GitHub."""

COMMITS_OF_COMPARE = 250
FILES_OF_COMPARE = 300


def resolve(call: Call, text: str) -> str | None:
    """Return the commit that a branch, tag, full ref or oid names."""
    for name in (f"refs/heads/{text}", f"refs/tags/{text}", text if text.startswith("refs/") else f"refs/{text}"):
        oid = call.ref(name)
        if oid is not None:
            return oid
    return text if call.git.commit(text) is not None else None


def get_ref(call: Call) -> Any:
    """Answer one ref, by its exact name."""
    name = f"refs/{call.params['ref']}"
    oid = call.ref(name)
    if oid is None:
        raise not_found()
    return Renderer(call).ref(call.repo, name, oid)


def matching_refs(call: Call) -> Any:
    """Answer every ref that begins with the text given."""
    found = call.refs(f"refs/{call.params['ref']}")
    return Page(list(found.items()), lambda item: Renderer(call).ref(call.repo, *item))


def create_ref(call: Call) -> Any:
    """Create a ref."""
    fields = call.fields(("ref", "sha"))
    name, oid = str(fields.get("ref", "")), str(fields.get("sha", ""))
    if not name.startswith("refs/") or name.count("/") < 2 or not call.git.valid_ref_name(name):
        raise Problem(422, "Reference name must start with 'refs/' and contain at least two slashes.")
    if not call.git.exists(oid):
        raise Problem(422, "Object does not exist")
    refs.guard(call, name, oid)
    try:
        call.git.swap(name, None, oid)
    except GitError as error:
        raise Problem(
            422, "Reference already exists" if call.git.ref(name) else f"Reference update failed: {error}"
        ) from error
    refs.after_rest(call, name, None, oid)
    return Reply(201, Renderer(call).ref(call.repo, name, oid))


def update_ref(call: Call) -> Any:
    """Move a ref; backwards only with ``force``."""
    fields = call.fields(("sha", "force"))
    name, oid = f"refs/{call.params['ref']}", str(fields.get("sha", ""))
    old = call.git.ref(name)
    if old is None:
        raise Problem(422, "Reference does not exist")
    if not call.git.exists(oid):
        raise Problem(422, "Object does not exist")
    if not fields.get("force") and not call.git.is_ancestor(old, oid):
        raise Problem(422, "Update is not a fast forward")
    refs.guard(call, name, oid)
    try:
        call.git.swap(name, old, oid)
    except GitError as error:
        raise Problem(422, f"Reference update failed: {error}") from error
    refs.after_rest(call, name, old, oid)
    return Renderer(call).ref(call.repo, name, oid)


def delete_ref(call: Call) -> Any:
    """Delete a ref."""
    name = f"refs/{call.params['ref']}"
    old = call.git.ref(name)
    if old is None:
        raise Problem(422, "Reference does not exist")
    refs.guard(call, name, None)
    try:
        call.git.swap(name, old, None)
    except GitError as error:
        raise Problem(422, f"Reference update failed: {error}") from error
    refs.after_rest(call, name, old, None)
    return Reply(204)


def git_commit(call: Call) -> Any:
    """Answer a commit object."""
    info = call.git.commit(call.params["commit_sha"])
    if info is None:
        raise not_found()
    return Renderer(call).git_commit(call.repo, info)


def create_commit(call: Call) -> Any:
    """Make a commit object."""
    fields = call.fields(("message", "tree", "parents", "author", "committer"))
    tree, parents = str(fields.get("tree", "")), [str(parent) for parent in fields.get("parents") or []]
    if call.git.tree(tree) is None:
        raise Problem(422, "Tree SHA does not exist")
    if any(call.git.commit(parent) is None for parent in parents):
        raise Problem(422, "Parent SHA does not exist or is not a commit object")
    own = call.hub.person(call.actor)

    def person(given: Any) -> Person:
        return own if not given else Person(str(given["name"]), str(given["email"]), own.date)

    author = person(fields.get("author"))
    committer = person(fields.get("committer") or fields.get("author"))
    oid = call.git.write_commit(
        tree=tree, parents=parents, message=str(fields.get("message", "")), author=author, committer=committer
    )
    info = call.git.commit(oid)
    if info is None:
        raise not_found()
    return Reply(201, Renderer(call).git_commit(call.repo, info))


def create_blob(call: Call) -> Any:
    """Make a blob."""
    fields = call.fields(("content", "encoding"))
    text = str(fields.get("content", ""))
    data = base64.b64decode(text) if fields.get("encoding") == "base64" else text.encode()
    oid = call.git.write_blob(data)
    return Reply(201, {"sha": oid, "url": Renderer(call).url(call.repo, "git", "blobs", oid)})


def get_blob(call: Call) -> Any:
    """Answer a blob."""
    data = call.git.blob(call.params["file_sha"])
    if data is None:
        raise not_found()
    oid = call.params["file_sha"]
    return {
        "sha": oid, "node_id": f"B_{oid}", "size": len(data), "url": Renderer(call).url(call.repo, "git", "blobs", oid),
        "content": base64.encodebytes(data).decode(), "encoding": "base64",
    }  # fmt: skip


def _tree_rows(call: Call, oid: str, base: str, *, recursive: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, mode, child in call.git.tree(oid) or []:
        path = f"{base}{name}"
        directory = mode == 0o040000
        kind = "tree" if directory else "blob"
        row: dict[str, Any] = {
            "path": path,
            "mode": f"{mode:06o}",
            "type": kind,
            "sha": child,
            "url": Renderer(call).url(call.repo, "git", f"{kind}s", child),
        }
        if not directory:
            row["size"] = len(call.git.blob(child) or b"")
        rows.append(row)
        if directory and recursive:
            rows += _tree_rows(call, child, f"{path}/", recursive=True)
    return rows


def get_tree(call: Call) -> Any:
    """Answer a tree, with ``recursive`` all below it."""
    text = call.params["tree_sha"]
    commit = resolve(call, text)
    info = call.git.commit(commit) if commit else None
    oid = info.tree if info else text
    if call.git.tree(oid) is None:
        raise not_found()
    rows = _tree_rows(call, oid, "", recursive="recursive" in call.query)
    return {"sha": oid, "url": Renderer(call).url(call.repo, "git", "trees", oid), "tree": rows, "truncated": False}


def create_tree(call: Call) -> Any:
    """Make a tree from a base tree and changed entries."""
    fields = call.fields(("tree", "base_tree"))
    written: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    deleted: list[str] = []
    for entry in fields.get("tree") or []:
        if entry.get("sha") is None and "content" not in entry:
            deleted.append(entry["path"])
            continue
        data = entry["content"].encode() if "content" in entry else call.git.blob(entry["sha"])
        if data is None:
            raise Problem(422, f"tree.sha {entry['sha']} is not a valid blob")
        written[entry["path"]] = data
        modes[entry["path"]] = int(str(entry.get("mode", "100644")), 8)
    base = fields.get("base_tree")
    if base is not None:
        info = call.git.commit(base)
        base = info.tree if info else base
    oid = call.git.write_tree(written, base_tree=base, deleted=deleted, modes=modes)
    rows = _tree_rows(call, oid, "", recursive=False)
    return Reply(
        201, {"sha": oid, "url": Renderer(call).url(call.repo, "git", "trees", oid), "tree": rows, "truncated": False}
    )


def _branch(call: Call, name: str, oid: str) -> dict[str, Any]:
    return {
        "name": name,
        "commit": {"sha": oid, "url": Renderer(call).url(call.repo, "commits", oid)},
        "protected": False,
    }


def branches(call: Call) -> Any:
    """Answer the branches."""
    found = call.refs("refs/heads/")
    return Page(list(found.items()), lambda item: _branch(call, item[0].removeprefix("refs/heads/"), item[1]))


def branch(call: Call) -> Any:
    """Answer one branch, by its exact name."""
    name = call.params["branch"]
    oid = call.ref(f"refs/heads/{name}")
    info = call.git.commit(oid) if oid else None
    if info is None:
        raise Problem(404, "Branch not found")
    url = Renderer(call).url(call.repo, "branches", name)
    html = Renderer(call).html(call.repo, "tree", name)
    checks = {"enforcement_level": "off", "contexts": [], "checks": []}
    return {
        "name": name,
        "commit": Renderer(call).commit(call.repo, info),
        "protected": False,
        "protection": {"enabled": False, "required_status_checks": checks},
        "protection_url": f"{url}/protection",
        "_links": {"self": url, "html": html},
    }


def commits(call: Call) -> Any:
    """Answer the history of a branch or commit, newest first; with ``path`` only what touched it."""
    start = resolve(call, call.query.get("sha") or call.repo.default_branch)
    if start is None:
        raise not_found()
    found = [info for oid in call.git.history(start) if (info := call.git.commit(oid)) is not None]
    path = call.query.get("path")
    if path:
        found = [info for info in found if _touches(call, info.oid, info.parents, path)]
    return Page(found, lambda info: Renderer(call).commit(call.repo, info))


def _touches(call: Call, oid: str, parents: tuple[str, ...], path: str) -> bool:
    now = call.git.entry(oid, path)
    return all(call.git.entry(parent, path) != now for parent in parents) if parents else now is not None


def commit(call: Call) -> Any:
    """Answer a commit with its files."""
    oid = resolve(call, call.params["ref"])
    info = call.git.commit(oid) if oid else None
    if info is None:
        raise Problem(422, f"No commit found for SHA: {call.params['ref']}")
    changes = call.git.changes(info.parents[0] if info.parents else None, info.oid)
    added, deleted = sum(change.additions for change in changes), sum(change.deletions for change in changes)
    return Renderer(call).commit(call.repo, info) | {
        "stats": {"total": added + deleted, "additions": added, "deletions": deleted},
        "files": [Renderer(call).file(call.repo, info.oid, change) for change in changes],
    }


def pulls_of_commit(call: Call) -> Any:
    """Answer the pull requests that a commit belongs to."""
    oid = call.params["commit_sha"]
    if call.git.commit(oid) is None:
        raise Problem(422, f"No commit found for SHA: {oid}")
    found = [issue for issue in call.repo.issues.values() if issue.pull and _has_commit(call, issue.pull, oid)]
    return Page(found, lambda issue: Renderer(call).simple_pull(call.repo, issue))


def _has_commit(call: Call, part: PullPart, oid: str) -> bool:
    return part.head_oid == oid or any(info.oid == oid for info in call.git.between(part.base_oid, part.head_oid))


def compare(call: Call) -> Any:
    """Answer how two commits differ."""
    base_text, dots, head_text = call.params["basehead"].partition("...")
    base = resolve(call, base_text.rpartition(":")[2])
    head = resolve(call, head_text.rpartition(":")[2])
    if not dots or base is None or head is None:
        raise not_found()
    common = call.git.merge_base(base, head)
    base_info, head_info = call.git.commit(base), call.git.commit(head)
    common_info = call.git.commit(common) if common else None
    if base_info is None or head_info is None or common_info is None:
        raise Problem(404, "No common ancestor between " + base_text + " and " + head_text + ".")
    ahead, behind = call.git.between(base, head), call.git.between(head, base)
    word = "identical" if base == head else "diverged" if ahead and behind else "ahead" if ahead else "behind"
    changes = call.git.changes(common, head)
    render = Renderer(call)
    html = render.html(call.repo, "compare", call.params["basehead"])
    return {
        "url": render.url(call.repo, "compare", call.params["basehead"]),
        "html_url": html,
        "permalink_url": html,
        "diff_url": f"{html}.diff",
        "patch_url": f"{html}.patch",
        "base_commit": render.commit(call.repo, base_info),
        "merge_base_commit": render.commit(call.repo, common_info),
        "status": word,
        "ahead_by": len(ahead),
        "behind_by": len(behind),
        "total_commits": len(ahead),
        "commits": [render.commit(call.repo, info) for info in ahead[:COMMITS_OF_COMPARE]],
        "files": [render.file(call.repo, head, change) for change in changes[:FILES_OF_COMPARE]],
    }


def contents(call: Call) -> Any:
    """Answer a file or a directory at a commit."""
    path = call.params.get("path", "").strip("/")
    ref = call.query.get("ref") or call.repo.default_branch
    oid = resolve(call, ref)
    if oid is None:
        raise Problem(404, f"No commit found for the ref {ref}")
    found = call.git.entry(oid, path)
    if found is None:
        raise not_found()
    if found[0] == 0o040000:
        base = f"{path}/" if path else ""
        return [
            _content(call, f"{base}{name}", mode, child, ref) for name, mode, child in call.git.tree(found[1]) or []
        ]
    data = call.git.blob(found[1]) or b""
    if "raw" in call.headers.get("accept", ""):
        return Reply(200, data, {"Content-Type": "application/vnd.github.raw; charset=utf-8"})
    body = _content(call, path, found[0], found[1], ref)
    small = len(data) <= CONTENT_LIMIT
    return body | {
        "content": base64.encodebytes(data).decode() if small else "",
        "encoding": "base64" if small else "none",
    }


def _content(call: Call, path: str, mode: int, oid: str, ref: str) -> dict[str, Any]:
    render = Renderer(call)
    directory = mode == 0o040000
    url = render.url(call.repo, "contents", *path.split("/")) + f"?ref={ref}"
    git = render.url(call.repo, "git", "trees" if directory else "blobs", oid)
    html = render.html(call.repo, "tree" if directory else "blob", ref, path)
    return {
        "type": "dir" if directory else "file",
        "size": 0 if directory else len(call.git.blob(oid) or b""),
        "name": path.rpartition("/")[2],
        "path": path,
        "sha": oid,
        "url": url,
        "git_url": git,
        "html_url": html,
        "download_url": None if directory else render.html(call.repo, "raw", ref, path),
        "_links": {"self": url, "git": git, "html": html},
    }


def add_routes(router: Router) -> None:
    """Add these routes to the table."""
    base = "/repos/{owner}/{repo}"

    def add(method: str, path: str, handler: Any) -> None:
        router.route(method, f"{base}/{path}", permission="contents")(handler)

    add("GET", "git/ref/{ref+}", get_ref)
    add("GET", "git/matching-refs/{ref+}", matching_refs)
    add("POST", "git/refs", create_ref)
    add("PATCH", "git/refs/{ref+}", update_ref)
    add("DELETE", "git/refs/{ref+}", delete_ref)
    add("GET", "git/commits/{commit_sha}", git_commit)
    add("POST", "git/commits", create_commit)
    add("POST", "git/blobs", create_blob)
    add("GET", "git/blobs/{file_sha}", get_blob)
    add("GET", "git/trees/{tree_sha+}", get_tree)
    add("POST", "git/trees", create_tree)
    add("GET", "branches", branches)
    add("GET", "branches/{branch+}", branch)
    add("GET", "commits", commits)
    add("GET", "commits/{commit_sha}/pulls", pulls_of_commit)
    add("GET", "commits/{ref+}", commit)
    add("GET", "compare/{basehead+}", compare)
    root = f"{base}/contents"
    router.route("GET", root, permission="contents", named=root + "/{path}")(contents)
    add("GET", "contents/{path+}", contents)
