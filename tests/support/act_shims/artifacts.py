"""The artifact actions as a folder: a request is renamed into place, the answer is the id that the embedded GitHub gave.

The cache actions as another: a folder for each key, which all runs share, and never one that is written twice.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from pathlib import Path

STORE = Path(os.environ["SHIM_STORE"])
WAIT_SECONDS = 20


def upload() -> int:
    paths = sorted({found for line in os.environ["SHIM_PATH"].split() for found in Path().glob(line)})
    if not paths:
        return 1 if os.environ["SHIM_NONE"] == "error" else 0
    name = uuid.uuid4().hex
    making = STORE / f".{name}"
    (making / "files").mkdir(parents=True)
    for path in paths:
        shutil.copy(path, making / "files" / path.name)
    (making / "name").write_text(os.environ["SHIM_NAME"])
    making.rename(STORE / f"asked-{name}")
    end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        if (STORE / f"done-{name}").exists():
            with Path(os.environ["GITHUB_OUTPUT"]).open("a") as file:
                file.write(f"artifact-id={(STORE / f'done-{name}').read_text()}\n")
            return 0
        time.sleep(0.02)
    return 1


def download() -> int:
    target = Path(os.environ["SHIM_PATH"])
    target.mkdir(parents=True, exist_ok=True)
    for one in os.environ["SHIM_IDS"].split(","):
        for path in (STORE / f"artifact-{int(one)}" / "files").iterdir():
            shutil.copy(path, target / path.name)
    return 0


def restore() -> int:
    caches = Path(os.environ["SHIM_CACHE"])
    found = [one for one in caches.iterdir() if one.name.startswith(os.environ["SHIM_PREFIX"].strip() or "-")]
    exact = caches / os.environ["SHIM_KEY"]
    newest = exact if exact.exists() else max(found, key=lambda one: one.stat().st_mtime_ns, default=None)
    if newest is not None:
        shutil.copytree(newest, os.environ["SHIM_PATH"], dirs_exist_ok=True)
    print(f"restored: {newest.name if newest is not None else 'nothing'}")  # noqa: T201 - as the action does
    return 0


def save() -> int:
    place = Path(os.environ["SHIM_CACHE"]) / os.environ["SHIM_KEY"]
    if not place.exists():
        shutil.copytree(os.environ["SHIM_PATH"], place)
    return 0


if __name__ == "__main__":
    sys.exit({"upload": upload, "download": download, "restore": restore, "save": save}[sys.argv[1]]())
