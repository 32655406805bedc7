"""The metadata files of a table: summaries of snapshots and properties, of now and of before."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from lakecdc.erase.cursors import tells_cursor
from lakecdc.iceberg.reachability import newest_metadata
from lakecdc.iceberg.stored_files import read_bytes
from lakecdc.maintain.orphans.storage import TableStorage

if TYPE_CHECKING:
    from lakecdc.erase.mentions import Mentions
    from lakecdc.iceberg.table import IcebergTable

#: ends of the names of metadata files
METADATA = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


def delete_former(table: IcebergTable) -> int:
    """Delete the metadata files that the table's log names, but for the newest.

    :return: how many there were.
    """
    # none of these can become the table's metadata again, unlike a file that a commit is about to publish
    *former, newest = [entry["metadata-file"] for entry in newest_metadata(table)["metadata-log"]]
    going = TableStorage(table).find({*former} - {newest})
    TableStorage(table).delete([*going])
    return len(going)


def tells_key(table: IcebergTable, location: str, mentions: Mentions) -> bool:
    """Check whether a metadata file holds a key in a summary or a property.

    :raises ValueError: it cannot be decoded.
    """
    content = read_bytes(table, location)
    document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    entries = [document.get("properties", {}), *(each.get("summary", {}) for each in document.get("snapshots", []))]
    return any(_tells(each, mentions) for each in entries)


def _tells(entries: dict[str, Any], mentions: Mentions) -> bool:
    # what else lakecdc writes has numbers of snapshots, columns and files, and no value of a row
    others = {name: value for name, value in entries.items() if not name.startswith("lakecdc.")}
    return tells_cursor(entries, mentions.integers) or mentions.in_settings(others)
