"""Tables whose files this job does not dare to judge."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.reachability import read_metadata
from lakecdc.iceberg.stored_files import StoredFile, VanishedError, read_bytes
from lakecdc.maintain.orphans.locations import key, place
from lakecdc.maintain.shared_files import refuse_shared_files

if TYPE_CHECKING:
    from lakecdc.iceberg.neighbours import Neighbour
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.orphans.reachable import Reachable

_NEWEST_VERSION = 3
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
# writers put it first
_HEAD_BYTES = 4096
_THREADS = 8
#: metadata files beside the table's history whose files are kept; more of them are another catalog's
_MOST_BESIDE = 50


def refuse_unsupported(table: IcebergTable, folders: Sequence[str]) -> None:
    """Refuse a table that others may depend on, or of which not everything can be read.

    :param folders: where its files go.
    :raises UnsupportedError: saying why.
    """
    refuse_shared_files(table)
    if table.format_version > _NEWEST_VERSION:
        raise UnsupportedError(
            f"It has format version {table.format_version}, of which not every reference is known.", table=table.name
        )
    if table.is_encrypted:
        raise UnsupportedError("It is encrypted, and its manifests cannot be read here.", table=table.name)
    if roots := [folder for folder in folders if not place(folder).path]:
        raise UnsupportedError(
            f"Its files go to {roots[0]}, which is all of a bucket or file system.",
            table=table.name,
            hint="Everything in there would have to be the table's; give it a folder of its own.",
        )


def refuse_shared(table: IcebergTable, folders: Sequence[str], neighbours: Iterable[Neighbour]) -> None:
    """Refuse a table whose folders are, hold, or lie in those of another table of the catalog.

    :raises UnsupportedError: naming the other one.
    """
    ours = [place(folder) for folder in folders]
    for other in neighbours:
        # some catalogs know names in small letters only
        if other.name.casefold() == table.name.casefold() and other.uuid == table.uuid:
            continue
        for folder in other.folders:
            if any(place(folder).meets(own) for own in ours):
                raise UnsupportedError(
                    f"Its location meets that of {other.name}, {folder}, whose files would pass for orphans.",
                    table=table.name,
                    hint="Give each table a location of its own, and drop what is registered twice.",
                )


def keep_or_refuse(
    table: IcebergTable, metadata: Mapping[str, Any], files: Sequence[StoredFile], reachable: Reachable
) -> int:
    """Look at the metadata files at the location that are not in the table's history.

    One of another UUID is another table's: of another catalog, or dropped. One of the same UUID that is younger than
    the history was left by a commit of which nobody knows the end, or by another catalog: what it refers to is kept.

    :param metadata: of the table, newest.
    :param files: all metadata files found.
    :return: how many files beside the history are kept for.
    :raises UnsupportedError: there are another table's.
    """
    history = metadata["metadata-log"]
    since = min(entry["timestamp-ms"] for entry in history)
    known = {key(entry["metadata-file"]) for entry in history}
    unknown = [file for file in files if key(file.location) not in known and "metadata.json" in file.location]
    with ThreadPoolExecutor(_THREADS) as pool:
        uuids = list(pool.map(lambda file: _uuid(table, file.location), unknown))
    for file, uuid in zip(unknown, uuids, strict=True):
        if uuid not in (None, metadata["table-uuid"]):
            raise UnsupportedError(
                f"Its UUID is {metadata['table-uuid']}, and at its location there is metadata of table {uuid}: "
                f"{file.location}.",
                table=table.name,
                hint="Another catalog may have a table here, or one was dropped and made anew. If nobody needs that "
                "one, move its metadata files away.",
            )
    beside = [file for file in unknown if file.modified_ms >= since]
    if len(beside) > _MOST_BESIDE:
        raise UnsupportedError(
            f"At its location there are {len(beside)} versions of its metadata that are not in its history, such as "
            f"{beside[0].location}.",
            table=table.name,
            hint="Another catalog seems to write to the same files; unregister it there.",
        )
    for file in beside:
        # commits remove old versions, and refused ones what they have written
        with suppress(VanishedError):
            reachable.protect(read_metadata(table, file.location))
    return len(beside)


def _uuid(table: IcebergTable, location: str) -> str | None:
    """The UUID in a metadata file; None if it has none, as a file that was never finished or is gone."""
    with suppress(VanishedError):
        found = _UUID.search(_plain(read_bytes(table, location, _HEAD_BYTES)))
        found = found or _UUID.search(_plain(read_bytes(table, location)))
        return found[1].decode() if found else None
    return None


def _plain(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    # a part of a compressed file is no error to this one
    return zlib.decompressobj(wbits=31).decompress(content)
