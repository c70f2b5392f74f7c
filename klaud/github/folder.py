"""A repository's objects on disk, for a ref store that pushes work from them (``refs.GitRefStore(object_store=...)``)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dulwich import object_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def objects_of(repository: Path) -> Iterator[object_store.DiskObjectStore]:
    """Open the objects of a bare repository; packs that appear later are found. Closed at the end."""
    store = object_store.DiskObjectStore(str(repository / "objects"))
    try:
        yield store
    finally:
        store.close()
