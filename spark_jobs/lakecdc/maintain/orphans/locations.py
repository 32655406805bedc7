"""One name for one file, however engines write its location and storage lists it."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote

#: folder below a location for what this job writes and moves; engines and clean-ups pass over names like this
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
    """Where a folder is.

    :param store: the object store; empty for every file system, as one of them has several schemes and names.
    :param bucket: bucket or container; empty for every file system.
    :param path: without an end.
    """

    store: str
    bucket: str
    path: str

    def meets(self, other: Place) -> bool:
        """Tell whether one of the two is, or lies in, the other."""
        ours, theirs = f"{self.path}/", f"{other.path}/"
        same = (self.store, self.bucket) == (other.store, other.bucket)
        return same and (ours.startswith(theirs) or theirs.startswith(ours))


def place(location: str) -> Place:
    """The place of a folder."""
    scheme, authority, _ = split(location)
    store = _OBJECT_STORES.get(scheme, "")
    # one Azure container has a host for blobs and one for files
    return Place(store, authority.partition(".")[0] if store else "", key(location).rstrip("/"))


def key(location: str) -> str:
    """What two locations of the same file have in common, and now and then those of two files.

    Schemes and authorities differ between engines (``file:///`` and ``file:/``, ``s3://`` and ``s3a://``, a name node
    and its service), some encode blanks and others do not. To take a location for another one only keeps an orphan.
    """
    found = path(location)
    while "%" in found and (decoded := unquote(found)) != found:
        found = decoded
    return _SLASHES.sub("/", found)


def path(location: str) -> str:
    """The location without scheme and authority, encoded as it is."""
    return _SLASHES.sub("/", split(location)[2])


def relative(location: str, root: str) -> str:
    """The part of a listed location behind the folder that was listed.

    :raises ValueError: it is not below that folder.
    """
    if not is_below(location, root):
        raise ValueError(f"{location} is not below {root}.")
    return path(location).removeprefix(_above(root))


def is_below(location: str, root: str) -> bool:
    """Tell whether a listed location is below a folder of the same storage."""
    return path(location).startswith(_above(root))


def is_surely_below(location: str, root: str) -> bool:
    """Tell whether a location that was read from a document is below a folder, and in no other storage."""
    steps = key(location).split("/")
    return is_below(location, root) and not {".", ".."}.intersection(steps) and _same_storage(location, root)


def _same_storage(one: str, other: str) -> bool:
    """Tell whether two locations are in one storage; a location without scheme or authority is in the default one."""
    if {place(one).store, place(other).store} != {""}:
        return (place(one).store, place(one).bucket) == (place(other).store, place(other).bucket)
    return all(not a or not b or a == b for a, b in zip(split(one)[:2], split(other)[:2], strict=True))


def _above(root: str) -> str:
    return path(root).rstrip("/") + "/"


def in_object_store(location: str) -> bool:
    """Tell whether files can only be deleted there, not moved."""
    return split(location)[0] in _OBJECT_STORES


def in_s3(location: str) -> bool:
    """Tell whether a location is one of S3."""
    return split(location)[0] in _S3


def is_hidden(name: str, partition_fields: Collection[str]) -> bool:
    """Tell whether a file is somebody else's: a part of its name begins with ``_`` or ``.``, as Hive's and Delta's do.

    :param name: relative to the table's location.
    :param partition_fields: names of partition fields, whose folders may begin like that.
    """
    return any(
        part.startswith(("_", ".")) and unquote(part.partition("=")[0]) not in partition_fields
        for part in name.split("/")
    )


def is_table_metadata(name: str) -> bool:
    """Tell whether a file is a version of some table's metadata, or names the newest of them."""
    return name.endswith(_TABLE_METADATA)


def split(location: str) -> tuple[str, str, str]:
    """Scheme in small letters, authority and path of a location, nothing decoded."""
    found = _PARTS.match(location)
    assert found is not None, "every text matches"
    return (found["scheme"] or "").lower(), found["authority"] or "", found["path"]
