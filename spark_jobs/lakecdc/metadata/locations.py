"""Locations of files, which engines write and storage lists in different ways.

Metadata of format version 4 may have relative ones: :func:`resolve` comes first wherever locations from metadata are
opened, or compared with those of a listing. Two are then compared by :func:`canonical`, or by :func:`key` where
mistaking a file for another one is safer than missing it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

_PARTS = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SLASHES = re.compile("//+")
#: pattern of the beginning of absolute locations, also in SQL
ABSOLUTE = r"^(?:/|[A-Za-z][A-Za-z0-9+.-]*:)"
_S3 = ("s3", "s3a", "s3n")
#: object stores by scheme, each with one name for all schemes of the same store
_OBJECT_STORES = {
    **dict.fromkeys(_S3, "s3"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azure"),
    **dict.fromkeys(("cos", "cosn"), "cos"),
    "gs": "gs",
    "oss": "oss",
    "obs": "obs",
}


@dataclass(frozen=True)
class Place:
    """Normalized location of a folder, without a trailing slash.

    :param store: the object store; empty for every file system, because one may have several schemes and names.
    :param bucket: bucket or container; empty for every file system.
    """

    store: str
    bucket: str
    path: str

    def meets(self, other: Place) -> bool:
        """Check whether one of the two equals or contains the other."""
        ours, theirs = f"{self.path}/", f"{other.path}/"
        same = (self.store, self.bucket) == (other.store, other.bucket)
        return same and (ours.startswith(theirs) or theirs.startswith(ours))


def is_relative(location: str) -> bool:
    """Check whether a location from metadata is relative to that of its table (format version 4)."""
    return re.match(ABSOLUTE, location) is None


def resolve(location: str, root: str) -> str:
    """Return a location from a table's metadata as an absolute one.

    :param root: the table's location.
    """
    return f"{root.rstrip('/')}/{location}" if is_relative(location) else location


def readings(location: str, root: str) -> Iterator[str]:
    """Yield every reading of a location from a table's metadata, for files that must not be removed.

    A location without a scheme that begins with a slash is absolute, but relative in Iceberg's code for format version
    4.
    """
    yield resolve(location, root)
    if location.startswith("/"):
        yield root.rstrip("/") + location


def canonical(location: str, root: str = "") -> str:
    """Return the same text for all locations of one file, and another one for any other file.

    Schemes of one store are equal, and so are those of local files. In object stores ``//`` is part of a name, and
    percent signs are everywhere. Names of a distributed file system's host are not known to be equal.

    :param root: the table's location, for locations from its metadata.
    """
    scheme, authority, rest = split(resolve(location, root) if root else location)
    if store := _OBJECT_STORES.get(scheme, ""):
        return f"{store}://{_bucket(store, authority)}{rest}"
    local = scheme in ("", "file") and authority in ("", "localhost")
    return _SLASHES.sub("/", rest) if local else f"{scheme}://{authority}{_SLASHES.sub('/', rest)}"


def place(location: str) -> Place:
    """Normalize the location of a folder."""
    scheme, authority, _ = split(location)
    store = _OBJECT_STORES.get(scheme, "")
    return Place(store, _bucket(store, authority) if store else "", key(location).rstrip("/"))


def _bucket(store: str, authority: str) -> str:
    # an Azure container has one host for blobs and another for files, OSS's may name one; an S3 bucket may have dots
    return authority.partition(".")[0] if "@" in authority or store == "oss" else authority


def key(location: str) -> str:
    """Return a key that all locations of one file share, and occasionally those of two files.

    Schemes and authorities differ between engines (``file:///`` and ``file:/``, ``s3://`` and ``s3a://``, a name node
    and its service), some encode blanks, and a relative location may go up. A collision only keeps an orphan.
    """
    decoded = _decoded(location)
    return posixpath.normpath(decoded) if "/." in decoded else decoded


def _decoded(location: str) -> str:
    decoded_path = path(location)
    while "%" in decoded_path and (decoded := unquote(decoded_path)) != decoded_path:
        decoded_path = decoded
    return _SLASHES.sub("/", decoded_path)


def path(location: str) -> str:
    """Return the location without scheme and authority, and without decoding."""
    return _SLASHES.sub("/", split(location)[2])


def relative(location: str, root: str) -> str:
    """Return the part of a listed location after the listed folder; raise ValueError if it is not below it."""
    if not is_below(location, root):
        raise ValueError(f"{location} is not below {root}.")
    return path(location).removeprefix(_above(root))


def is_below(location: str, root: str) -> bool:
    """Check whether a listed location is below a folder of the same storage."""
    return path(location).startswith(_above(root))


def is_surely_below(location: str, root: str) -> bool:
    """Check whether a location from a document is below a folder, and in the same storage."""
    steps = _decoded(location).split("/")
    return is_below(location, root) and not {".", ".."}.intersection(steps) and _same_storage(location, root)


def _same_storage(one: str, other: str) -> bool:
    """Check whether two locations are in one storage; no scheme or authority means the default one."""
    if {place(one).store, place(other).store} != {""}:
        return (place(one).store, place(one).bucket) == (place(other).store, place(other).bucket)
    return all(not a or not b or a == b for a, b in zip(split(one)[:2], split(other)[:2], strict=True))


def _above(root: str) -> str:
    return path(root).rstrip("/") + "/"


def in_object_store(location: str) -> bool:
    """Check whether files can only be deleted there, not moved."""
    return split(location)[0] in _OBJECT_STORES


def in_s3(location: str) -> bool:
    return split(location)[0] in _S3


def split(location: str) -> tuple[str, str, str]:
    """Split a location into lower-case scheme, authority and path, without decoding."""
    match = _PARTS.match(location)
    assert match is not None, "every text matches"
    return (match["scheme"] or "").lower(), match["authority"] or "", match["path"]
