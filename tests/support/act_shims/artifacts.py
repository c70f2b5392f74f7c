"""Both artifact actions as a folder: a request is renamed into place, the answer is the id that the embedded GitHub gave."""

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


if __name__ == "__main__":
    sys.exit({"upload": upload, "download": download}[sys.argv[1]]())
