"""Normalization of file locations, which engines write and storage lists in different ways."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote

#: folder below a location for this job's own files; engines and clean-ups ignore such names
FOLDER = "_lakecdc_orphans"
_PARTS = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)
_SLASHES = re.compile("//+")
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
_TABLE_METADATA = (".metadata.json", ".metadata.json.gz", "version-hint.text")


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


def place(location: str) -> Place:
    """Normalize the location of a folder."""
    scheme, authority, _ = split(location)
    store = _OBJECT_STORES.get(scheme, "")
    # an Azure container has one host for blobs and another for files
    return Place(store, authority.partition(".")[0] if store else "", key(location).rstrip("/"))


def key(location: str) -> str:
    """Return a key that all locations of one file share, and occasionally those of two files.

    Schemes and authorities differ between engines (``file:///`` and ``file:/``, ``s3://`` and ``s3a://``, a name node
    and its service), and some encode blanks. A collision only keeps an orphan.
    """
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
    steps = key(location).split("/")
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


def is_hidden(name: str, partition_fields: Collection[str]) -> bool:
    """Check whether a file is foreign: part of its name begins with ``_`` or ``.``, as Hive's and Delta's do.

    :param name: relative to the table's location.
    :param partition_fields: names of partition fields, whose folders may begin like that.
    """
    return any(
        part.startswith(("_", ".")) and unquote(part.partition("=")[0]) not in partition_fields
        for part in name.split("/")
    )


def is_table_metadata(name: str) -> bool:
    """Check whether a file is a version of a table's metadata, or names the newest one."""
    return name.endswith(_TABLE_METADATA)


def split(location: str) -> tuple[str, str, str]:
    """Split a location into lower-case scheme, authority and path, without decoding."""
    match = _PARTS.match(location)
    assert match is not None, "every text matches"
    return (match["scheme"] or "").lower(), match["authority"] or "", match["path"]
