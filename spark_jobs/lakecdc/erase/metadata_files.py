"""Metadata files of a table: snapshot summaries and properties, current and former."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from lakecdc.erase.cursors import cursor_entries
from lakecdc.iceberg.reachability import newest_metadata
from lakecdc.iceberg.stored_files import read_bytes
from lakecdc.maintain.orphans.storage import TableStorage

if TYPE_CHECKING:
    from lakecdc.erase.mentions import Mentions
    from lakecdc.iceberg.table import IcebergTable

#: suffixes of metadata files
METADATA = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


def delete_former(table: IcebergTable) -> int:
    """Delete the metadata files in the table's log, except the newest.

    :return: the number of deleted files.
    """
    # none of these can become the table's metadata again, unlike a file that a commit is about to publish
    *former, newest = [entry["metadata-file"] for entry in newest_metadata(table)["metadata-log"]]
    going = TableStorage(table).find({*former} - {newest})
    TableStorage(table).delete([*going])
    return len(going)


def entries_with_keys(table: IcebergTable, location: str, mentions: Mentions) -> set[str]:
    """Return the names of summary entries and properties in a metadata file that contain a key.

    :raises ValueError: the file cannot be decoded.
    """
    content = read_bytes(table, location)
    document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    entries = [document.get("properties", {}), *(each.get("summary", {}) for each in document.get("snapshots", []))]
    return {mentions.without_keys(name) for each in entries for name in _holding(each, mentions)}


def _holding(entries: dict[str, str], mentions: Mentions) -> list[str]:
    # other entries of lakecdc contain ids and counts, never row values
    others = {name: text for name, text in entries.items() if not name.startswith("lakecdc.")}
    single = [name for name, text in others.items() if mentions.in_settings({name: text})]
    if not single and mentions.in_settings(others):
        # a key of several columns, each an entry
        single = sorted(others)
    return [*cursor_entries(entries, mentions.integers), *single]
