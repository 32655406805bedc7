"""Names of files below a table's location that this job leaves alone, or has made itself."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import unquote

from lakecdc.object_store.names import CATALOG_FOLDER

#: folder below a location for this job's own files; engines and clean-ups ignore such names
FOLDER = "_lakecdc_orphans"
_TABLE_METADATA = (".metadata.json", ".metadata.json.gz", "version-hint.text")


def is_hidden(name: str, partition_fields: Collection[str]) -> bool:
    """Check whether a file is foreign: part of its name begins with ``_`` or ``.``, as Hive's and Delta's do.

    :param name: relative to the table's location.
    :param partition_fields: names of partition fields, whose folders may begin like that.
    """
    return any(
        part == CATALOG_FOLDER
        or (part.startswith(("_", ".")) and unquote(part.partition("=")[0]) not in partition_fields)
        for part in name.split("/")
    )


def is_table_metadata(name: str) -> bool:
    """Check whether a file is a version of a table's metadata, or names the newest one."""
    return name.endswith(_TABLE_METADATA)
