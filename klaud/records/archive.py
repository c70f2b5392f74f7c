"""One file out of a zip that nobody vouches for, from memory to memory. Pure.

Promises: whatever the bytes are, ``member`` returns, and what it holds meanwhile is bounded by ``entries`` and
``unpacked``: the entries are counted before a list of them is made, and unpacking stops one byte above the bound. A name
is taken exactly as it is asked for, so that no path leads anywhere; a name that is there twice is refused, because two
programs would read two different files.

Only stored and deflated entries, as an artifact has them: the other methods may ask for gigabytes to unpack a byte.
"""

from __future__ import annotations

import io
import zipfile
from typing import Final, Literal

import msgspec

ENTRY: Final = b"PK\x01\x02"
"""How each entry of a zip's list of contents begins."""

METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


class NoMember(msgspec.Struct, frozen=True):
    """Why there is no such file: it is not in there, or what is wrong with the zip or with it."""

    why: Literal["absent", "damaged", "too-many", "too-large", "twice"]


def member(packed: bytes, name: str, *, entries: int, unpacked: int) -> bytes | NoMember:
    """Return the file ``name`` of the zip ``packed``, or why not. Never raises for any bytes.

    ``entries`` bounds the files in it (those of a zip that is stored in it count, too), ``unpacked`` the file's bytes.
    """
    if packed.count(ENTRY) > entries:
        return NoMember("too-many")
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            found = [one for one in archive.infolist() if one.filename == name]
            if len(found) != 1:
                return NoMember("twice" if found else "absent")
            if found[0].compress_type not in METHODS:
                return NoMember("damaged")
            with archive.open(found[0]) as file:
                data = file.read(unpacked + 1)
    except Exception:  # noqa: BLE001 - a dozen kinds, of zipfile, zlib and struct: the zip is damaged, whatever they say
        return NoMember("damaged")
    return data if len(data) <= unpacked else NoMember("too-large")
