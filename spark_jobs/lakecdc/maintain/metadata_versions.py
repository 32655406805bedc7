"""Empty old metadata versions of tables in an object-store catalog, which never reuses their names.

Tables of other catalogs have none: these catalogs manage the metadata files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from lakecdc.contract.errors import LakecdcError, SourceUnavailableError
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.locations import key
from lakecdc.object_store.open_catalog import served
from lakecdc.object_store.versions import Versions, number_of

log = logging.getLogger(__name__)

_PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS_DEFAULT = 100


def versions_of(table: IcebergTable) -> Versions | None:
    """Return the versions of a table; None for other types of catalogs."""
    catalog = served(table.catalog)
    return catalog.versions(tuple(table.name.split("."))) if catalog else None


def require_hint(table: IcebergTable) -> None:
    """Make readers by path see the newest version, before files are deleted that older versions need.

    :raises SourceUnavailableError: the hint cannot be updated.
    """
    versions = versions_of(table)
    if versions is None:
        return
    head = versions.head()
    if head is None or not versions.move_hint(head.number):
        raise SourceUnavailableError(
            "Cannot move its version-hint.text to the newest version: readers by path would miss files.",
            table=table.name,
            hint="No file was deleted. Check that the driver may replace that object and run again; "
            "remove_orphan_files deletes the files that expired snapshots have left.",
        )


def trim(table: IcebergTable) -> dict[str, int]:
    """Empty the versions that readers and the table's log no longer need; return their number for the report.

    Versions in the log of the newest version stay complete.
    """
    versions = versions_of(table)
    if versions is None:
        return {}
    previous = int(table.properties.get(_PREVIOUS_VERSIONS, _PREVIOUS_VERSIONS_DEFAULT))
    with _unknown_outcome(table):
        return {"metadata_versions_trimmed": versions.trim(max(previous, 1) + 1)}


def wipe(table: IcebergTable) -> int | None:
    """Empty all versions but the newest, and return their number; None if there are no versions.

    :raises SourceUnavailableError: a version may still have its content.
    """
    versions = versions_of(table)
    if versions is None:
        return None
    with _unknown_outcome(table):
        return versions.wipe()


def remove_leftovers(catalog: str, before_ms: int) -> dict[str, int]:
    """Remove files of past versions that an object-store catalog no longer needs; return their number by kind.

    :param before_ms: unreferenced files written before this time are removed; milliseconds since 1970.
    """
    opened = served(catalog)
    if opened is None:
        return {}
    try:
        return {"catalog_files_removed": opened.leftovers.remove(datetime.fromtimestamp(before_ms / 1000, UTC))}
    except LakecdcError as error:
        log.warning("Catalog %s: cannot remove old files: %s", catalog, error)
        return {}


def is_version(versions: Versions | None, location: str) -> bool:
    """Check whether a listed file is one of a table's versions."""
    number = number_of(location)
    return versions is not None and number is not None and key(location) == key(versions.location_of(number))


@contextmanager
def _unknown_outcome(table: IcebergTable) -> Iterator[None]:
    from pyiceberg.exceptions import CommitStateUnknownException

    try:
        yield
    except CommitStateUnknownException as error:
        raise SourceUnavailableError(
            f"The storage did not say whether an old version of the metadata was emptied: {error}",
            table=table.name,
            hint="Run again.",
        ) from error
