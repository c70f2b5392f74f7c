"""Run one Python generator once for each of several command lines, in one process: a script that stands alone.

Standard input is JSON: ``{"script", "jobs": [[argument, ...], ...], "optional": [argument, ...], "seconds", "bytes",
"configs": [path, ...]}``. For each job one line of JSON is printed, ``{"job", "tries": [{"used", "exit", "stdout",
"stderr", "exceeded"}, ...]}``; ``job`` is its place in the list. A job that fails with optional arguments and names some of
them on its standard error is tried again without those: whether that was a refusal, klaud judges. Each try runs in a fork
of this process, so nothing that one does is seen by another. Shared are the imports that the script names and the parsed
configuration files, which are what a generator's second of run time is spent on: a fork takes its copy of a parsed file
once, and parses it itself from then on, so that changing it in place does no harm. Files are parsed by libyaml where PyYAML
has it.

Runs inside the sandbox; the limits of the whole call are the sandbox's. It imports nothing of klaud.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import pathlib
import runpy
import signal
import sys
import tempfile
import time
from typing import Any, NoReturn

KEPT_STDERR = 64 << 10


def share_imports(script: str) -> None:
    """Import what the script imports at its top, as far as that works."""
    try:
        tree = ast.parse(pathlib.Path(script).read_bytes())
    except (SyntaxError, ValueError):
        return
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def share_yaml(configs: list[str]) -> None:
    """Parse the configuration files now, and let ``yaml.safe_load`` and ``yaml.load`` hand each out once."""
    yaml: Any = sys.modules.get("yaml")
    fast = getattr(yaml, "CSafeLoader", None)
    if yaml is None or fast is None:
        return
    load, parsed = yaml.load, {}
    for path in configs:
        with contextlib.suppress(Exception):
            text = pathlib.Path(path).read_text(encoding="utf-8")
            parsed[text] = load(text, Loader=fast)

    def shared(stream: Any, Loader: Any = yaml.SafeLoader) -> Any:  # noqa: N803 - PyYAML's own name
        if Loader not in (yaml.SafeLoader, fast):
            return load(stream, Loader=Loader)
        text = stream.read() if hasattr(stream, "read") else stream
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        return parsed.pop(text) if text in parsed else load(text, Loader=fast)

    yaml.load = shared
    yaml.safe_load = shared


def work(script: str, arguments: list[str], out: int, err: int) -> NoReturn:
    """Be the generator: run the script as the main program, with its output in files."""
    status = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as error:
        code = error.code
        status = code if isinstance(code, int) else int(code is not None)
        if status == 1 and isinstance(code, str):
            sys.stderr.write(code + "\n")
    except BaseException as error:  # noqa: BLE001 - as the interpreter would
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 255)


def job(spec: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    """Run one job and return what it did."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            work(spec["script"], arguments, out.fileno(), err.fileno())
        until, exceeded, status = time.monotonic() + spec["seconds"], "", None
        while status is None:
            done, waited = os.waitpid(pid, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(waited)
            elif time.monotonic() > until:
                exceeded = "seconds"
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            else:
                time.sleep(0.002)
        if out.seek(0, os.SEEK_END) > spec["bytes"]:
            exceeded = exceeded or "output"
        out.seek(0)
        err.seek(0)
        said = out.read(spec["bytes"]).decode("utf-8", "surrogateescape")  # what is no text makes this line none, too
        errors = err.read(KEPT_STDERR).decode("utf-8", "replace")
    return {"exit": status, "stdout": said, "stderr": errors, "exceeded": exceeded}


def tries(spec: dict[str, Any], arguments: list[str]) -> list[dict[str, Any]]:
    """Run one job, and run it again without the optional arguments that it names when it fails; return every try."""
    used = list(spec["optional"])
    found = []
    while True:
        done = job(spec, [*arguments, *used])
        named = [word for word in used if word in done["stderr"]] if done["exit"] != 0 and not done["exceeded"] else []
        if named:
            done["stdout"] = ""
        found.append({"used": used, **done})
        if not named:
            return found
        used = [word for word in used if word not in named]


def main() -> None:
    """Read the spec, share what can be shared, run the jobs in order."""
    spec = json.load(sys.stdin)
    sys.path[0] = str(pathlib.Path(spec["script"]).parent)
    share_imports(spec["script"])
    share_yaml(spec["configs"])
    for number, arguments in enumerate(spec["jobs"]):
        sys.stdout.write(json.dumps({"job": number, "tries": tries(spec, arguments)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
