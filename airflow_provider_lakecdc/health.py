"""Table health as the Airflow side measures it: all manifests of a branch's head through pyiceberg, no file of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.tables import MAIN, branch_snapshots, partition_of, summary_of
from lakecdc.metadata import totals
from lakecdc.metadata.file_sizes import target_file_bytes
from lakecdc.metadata.health import TableHealth, measured
from lakecdc.metadata.live_files import PATH_ID, Content, LiveFile

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table

# reading waits for the store, decoding for Python
_THREADS = 4


def health_of(table: Table, branch: str = MAIN) -> TableHealth | None:
    """Measure a branch's head.

    :return: None if the branch has no snapshot.
    """
    head = next(branch_snapshots(table, branch), None)
    if head is None:
        return None
    manifests = head.manifests(table.io)
    return measured(
        _live_files(table, manifests),
        target_file_bytes=target_file_bytes(table.properties, totals.from_summary(summary_of(head)).bytes),
        snapshots=len(table.metadata.snapshots),
        manifests=[manifest.manifest_length for manifest in manifests],
    )


def _live_files(table: Table, manifests: Sequence[ManifestFile]) -> Iterator[LiveFile]:
    unpartitioned = {number for number, spec in table.specs().items() if spec.is_unpartitioned()}
    with ThreadPoolExecutor(_THREADS) as pool:
        for manifest, entries in zip(manifests, pool.map(partial(_entries, table), manifests), strict=True):
            for entry in entries:
                yield _live_file(entry, manifest.partition_spec_id in unpartitioned)


def _entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    return manifest.fetch_manifest_entry(table.io)


def _live_file(entry: ManifestEntry, everywhere: bool) -> LiveFile:
    """A manifest's entry.

    :param everywhere: whether equality deletes of its partition spec apply to all partitions.
    """
    file = entry.data_file
    content = _content(file)
    return LiveFile(
        content,
        None if content is Content.EQUALITY_DELETES and everywhere else partition_of(file),
        file.file_size_in_bytes,
        file.record_count,
        entry.sequence_number or 0,
        _location(file, content),
        file.file_path if content is Content.DELETION_VECTOR else None,
    )


def _content(file: DataFile) -> Content:
    from pyiceberg.manifest import DataFileContent, FileFormat

    if file.content == DataFileContent.DATA:
        return Content.DATA
    if file.content == DataFileContent.EQUALITY_DELETES:
        return Content.EQUALITY_DELETES
    return Content.DELETION_VECTOR if file.file_format == FileFormat.PUFFIN else Content.POSITION_DELETES


def _location(file: DataFile, content: Content) -> str | None:
    """A data file's own location, or that of the one data file that both bounds of position deletes name."""
    if content is Content.DATA:
        return file.file_path
    lower, upper = ((bounds or {}).get(PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return lower.decode() if content is Content.POSITION_DELETES and lower and lower == upper else None
