"""Changes as files for others: each export is a folder of its own, and is there once its marker is.

A folder is named by its number and its snapshots, and ``_SUCCESS`` in it, written last, tells what it holds. One
without that marker was left by a run that came to no end; the next run removes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakecdc import failpoints
from lakecdc.contract.report import now
from lakecdc.export.envelopes import envelopes
from lakecdc.export.files import write_json_lines, write_parquet
from lakecdc.iceberg.stored_files import FileIoStorage, delete_folder, read_bytes, write_bytes
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.exports import of_another

if TYPE_CHECKING:
    from lakecdc.export.destination import Export
    from lakecdc.iceberg.table import IcebergTable

MARKER = "_SUCCESS"
_NAME = re.compile(r"(\d{8})-(?:begin|\d+)-\d+")


class FolderDestination:
    """A folder that the table's FileIO gets to.

    :param folder: absolute path or URI.
    :param format: ``parquet`` or ``debezium-json``.
    """

    def __init__(self, source: IcebergTable, folder: str, format: str) -> None:
        self._source, self._folder, self._format = source, folder.rstrip("/"), format
        found = [file.location.rsplit("/", 2)[1:] for file in FileIoStorage(source).walk(f"{self._folder}/")]
        whole = {name for name, file in found if file == MARKER and _NAME.fullmatch(name)}
        self._unfinished = {name for name, _ in found if _NAME.fullmatch(name)} - whole
        self._last = max(whole, default=None)

    def exported(self) -> int | None:
        """See :class:`lakecdc.export.destination.Destination`."""
        if self._last is None:
            return None
        marker: Mapping[str, Any] = json.loads(read_bytes(self._source, f"{self._folder}/{self._last}/{MARKER}"))
        if marker["table_uuid"] != self._source.uuid:
            raise of_another(self._source.name, f"The folder {self._folder}")
        return int(marker["until"])

    def write(self, export: Export) -> dict[str, Any]:
        """See :class:`lakecdc.export.destination.Destination`; without changes there is a marker and no file."""
        for name in self._unfinished:
            delete_folder(self._source, f"{self._folder}/{name}")
        number = int(self._last.partition("-")[0]) + 1 if self._last else 1
        since = str(export.since.id) if export.since else None
        folder = f"{self._folder}/{number:08d}-{since or 'begin'}-{export.until.id}"
        if self._format == "parquet":
            files = write_parquet(self._source, export.changes, folder)
        else:
            files = write_json_lines(self._source, envelopes(export), folder)
        failpoints.reach("before_marker")
        marker = {
            "version": 1,
            "table": self._source.name,
            "table_uuid": self._source.uuid,
            "since": since,
            "until": str(export.until.id),
            "until_timestamp": iso(export.until.timestamp_ms),
            "format": self._format,
            "steps": export.is_steps,
            "changes": export.counts,
            "files": [{"name": file.name, "rows": file.rows, "bytes": file.bytes} for file in files],
            "written_at": now(),
        }
        write_bytes(self._source, f"{folder}/{MARKER}", json.dumps(marker, indent=2).encode())
        failpoints.reach("after_marker")
        return {
            "rows_written": sum(file.rows for file in files),
            "bytes_written": sum(file.bytes for file in files),
            "files_written": len(files),
            "exported_as": folder,
        }
