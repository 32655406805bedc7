"""Refuse tables whose files this job cannot judge safely."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.neighbours import Neighbour
from lakecdc.iceberg.reachability import read_metadata
from lakecdc.iceberg.stored_files import StoredFile, VanishedError, read_bytes
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.metadata_versions import is_version, versions_of
from lakecdc.maintain.orphans.reachable import Reachable
from lakecdc.maintain.protected import refuse_shared_files
from lakecdc.metadata.locations import key, place, resolve
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.object_store.names import CATALOG_FOLDER
from lakecdc.object_store.versions import is_stub

_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
# writers put the UUID first
_HEAD_BYTES = 4096
_THREADS = 8
#: maximum number of metadata files outside the table's history; more indicate another catalog
_MOST_BESIDE = 50


def refuse_unsupported(table: IcebergTable, folders: Sequence[str]) -> None:
    """Refuse a table if others may use its files, or if not all of its metadata can be read."""
    refuse_shared_files(table)
    if table.format_version > NEWEST_VERSION:
        raise UnsupportedError(
            f"The format version {table.format_version} is not supported: it may have unknown references.",
            table=table.name,
        )
    if table.is_encrypted:
        raise UnsupportedError("It is encrypted, and encrypted manifests cannot be read.", table=table.name)
    if roots := [folder for folder in folders if not place(folder).path]:
        raise UnsupportedError(
            f"Its files go to {roots[0]}, the root of a bucket or file system.",
            table=table.name,
            hint="Give the table a separate folder, so that other files do not count as its orphans.",
        )
    if inside := [folder for folder in folders if CATALOG_FOLDER in key(folder).split("/")]:
        raise UnsupportedError(
            f"Its files go to {inside[0]}, the folder of a catalog's own documents.",
            table=table.name,
            hint=f"Move the table to a folder that is not below {CATALOG_FOLDER}.",
        )


def refuse_shared(table: IcebergTable, folders: Sequence[str], neighbours: Iterable[Neighbour]) -> None:
    """Refuse a table whose folders overlap those of another table of the catalog."""
    ours = [place(folder) for folder in folders]
    for other in neighbours:
        # some catalogs convert names to lower case
        if other.name.casefold() == table.name.casefold() and other.uuid == table.uuid:
            continue
        for folder in other.folders:
            if any(place(folder).meets(own) for own in ours):
                raise UnsupportedError(
                    f"Its location overlaps that of {other.name}, {folder}, whose files would count as orphans.",
                    table=table.name,
                    hint="Give each table a separate location, and drop duplicate registrations.",
                )


def keep_or_refuse(
    table: IcebergTable, metadata: Mapping[str, Any], files: Sequence[StoredFile], reachable: Reachable
) -> int:
    """Check the metadata files at the location that are not in the table's history.

    A file with another UUID belongs to a table of another catalog or a dropped table. A file with the same UUID that is
    newer than the history comes from an unfinished commit or another catalog: the files it references are protected.

    :return: number of protected metadata files outside the history.
    :raises UnsupportedError: there is metadata of another table.
    """
    history, root = metadata["metadata-log"], table.location
    since = min(entry["timestamp-ms"] for entry in history)
    known = {key(resolve(entry["metadata-file"], root)) for entry in history}
    versions = versions_of(table)
    unknown = [
        file
        for file in files
        if key(file.location) not in known
        and "metadata.json" in file.location
        # the catalog's own versions, which it keeps while a writer may use the version before
        and not (is_stub(file.location, file.bytes) or is_version(versions, file.location))
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        uuids = list(pool.map(lambda file: _uuid(table, file.location), unknown))
    for file, uuid in zip(unknown, uuids, strict=True):
        if uuid not in (None, metadata["table-uuid"]):
            raise UnsupportedError(
                f"Its UUID is {metadata['table-uuid']}, but its location has metadata of table {uuid}: "
                f"{file.location}.",
                table=table.name,
                hint="Another catalog may have a table here, or one was dropped and recreated. If that one is not "
                "needed, move its metadata files away.",
            )
    beside = [file for file in unknown if file.modified_ms >= since]
    if len(beside) > _MOST_BESIDE:
        raise UnsupportedError(
            f"Its location has {len(beside)} versions of its metadata that are not in its history, such as "
            f"{beside[0].location}.",
            table=table.name,
            hint="Another catalog probably writes to the same files. Unregister the table there.",
        )
    for file in beside:
        # commits remove old versions, and refused commits remove their own
        with suppress(VanishedError):
            reachable.protect(read_metadata(table, file.location))
    return len(beside)


def _uuid(table: IcebergTable, location: str) -> str | None:
    """Return the UUID in a metadata file; None if the file is incomplete or was removed."""
    with suppress(VanishedError):
        match = _UUID.search(_plain(read_bytes(table, location, _HEAD_BYTES)))
        match = match or _UUID.search(_plain(read_bytes(table, location)))
        return match[1].decode() if match else None
    return None


def _plain(content: bytes) -> bytes:
    if not content.startswith(b"\x1f\x8b"):
        return content
    # this accepts a truncated compressed file
    return zlib.decompressobj(wbits=31).decompress(content)
