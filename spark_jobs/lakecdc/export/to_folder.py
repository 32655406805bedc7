"""Export changes as files: each export is a folder that becomes valid with its marker file.

A folder is named after its number and its snapshots; ``_SUCCESS``, written last, describes its content. A folder
without it belongs to another run that is active or dead; after a lost worker the retry cannot tell which. So a run
removes such a folder only when it is old enough to be dead, and never writes to a used number. If two runs export the
same changes, the second to finish is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.report import now
from lakecdc.export.destination import JOB, Export, envelopes
from lakecdc.export.write_task import RESULT, write_file
from lakecdc.iceberg.commit_outcome import discarded_on_conflict
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.stored_files import FileIoStorage, StoredFile, delete_folder, read_bytes, write_bytes
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.start_tag import MAX_AGE_SECONDS, numbered_tag
from lakecdc.metadata.expiry import iso
from lakecdc.metadata.exports import of_another
from lakecdc.runtime import failpoints

MARKER = "_SUCCESS"
_NAME = re.compile(r"(\d{8})-(?:begin|\d+)-\d+")


class FolderDestination:
    """A folder that the table's FileIO can access; the format is ``parquet`` or ``debezium-json``."""

    def __init__(self, source: IcebergTable, folder: str, format: str) -> None:
        self._source, self._folder, self._format = source, folder.rstrip("/"), format
        self._exports = self._list()
        self._last = _newest(self._exports)

    def exported(self) -> int | None:
        """Return the id of the last exported snapshot, if the folder belongs to this table."""
        if self._last is None:
            return None
        marker: Mapping[str, Any] = json.loads(read_bytes(self._source, f"{self._folder}/{self._last}/{MARKER}"))
        if marker["table_uuid"] != self._source.uuid:
            raise of_another(self._source.name, f"The folder {self._folder}")
        return int(marker["until"])

    def write(self, export: Export) -> dict[str, Any]:
        """Write a folder with a marker, without files if there are no changes; return numbers for the report."""
        self._remove_old()
        series = f"{JOB}-{hashlib.sha256(self._folder.encode()).hexdigest()[:12]}"
        highest = max(map(_number, self._exports), default=0)
        failpoints.reach("before_number")
        with numbered_tag(self._source, export.until, series, highest) as number:
            since = str(export.since.id) if export.since else "begin"
            name = f"{number:08d}-{since}-{export.until.id}"
            # another run may have finished before this run reserved its number
            self._refuse_if_overtaken(number, {})
            files = self._write_files(export, f"{self._folder}/{name}")
            failpoints.reach("before_marker")
            with discarded_on_conflict(partial(delete_folder, self._source, f"{self._folder}/{name}")):
                self._refuse_if_overtaken(number, {file.name: file.bytes for file in files})
            self._mark(export, name, files)
        failpoints.reach("after_marker")
        return {
            "rows_written": sum(file.rows for file in files),
            "bytes_written": sum(file.bytes for file in files),
            "files_written": len(files),
            "exported_as": f"{self._folder}/{name}",
        }

    def _write_files(self, export: Export, folder: str) -> list[Any]:
        """Write one file per non-empty partition, and return ``name``, ``rows`` and ``bytes`` of each."""
        rows, suffix = (export.changes, "parquet") if self._format == "parquet" else (envelopes(export), "jsonl")
        task = partial(write_file, properties=storage_properties(self._source), folder=folder, suffix=suffix)
        written = run_tasks(rows, task, RESULT).collect()
        return sorted(written, key=lambda file: file.name)

    def _mark(self, export: Export, name: str, files: Sequence[Any]) -> None:
        marker = {
            "version": 1,
            "table": self._source.name,
            "table_uuid": self._source.uuid,
            "since": str(export.since.id) if export.since else None,
            "until": str(export.until.id),
            "until_timestamp": iso(export.until.timestamp_ms),
            "format": self._format,
            "steps": export.is_steps,
            "changes": export.counts,
            "files": [{"name": file.name, "rows": file.rows, "bytes": file.bytes} for file in files],
            "written_at": now(),
        }
        write_bytes(self._source, f"{self._folder}/{name}/{MARKER}", json.dumps(marker, indent=2).encode())

    def _list(self) -> dict[str, dict[str, StoredFile]]:
        exports: dict[str, dict[str, StoredFile]] = {}
        for file in FileIoStorage(self._source).walk(f"{self._folder}/"):
            export, name = file.location.rsplit("/", 2)[1:]
            if _NAME.fullmatch(export):
                exports.setdefault(export, {})[name] = file
        return exports

    def _remove_old(self) -> None:
        """Remove folders of dead runs: not written to for longer than a run may last."""
        before_ms = (time.time() - MAX_AGE_SECONDS) * 1000
        for name, files in self._exports.items():
            if MARKER not in files and all(file.modified_ms < before_ms for file in files.values()):
                delete_folder(self._source, f"{self._folder}/{name}")

    def _refuse_if_overtaken(self, number: int, sizes: Mapping[str, int]) -> None:
        """Refuse to continue if another run exported meanwhile, or if this run's files have changed."""
        exports = self._list()
        own = [
            (name, file.bytes) for each in exports if _number(each) == number for name, file in exports[each].items()
        ]
        if _newest(exports) != self._last or sorted(own) != sorted(sizes.items()):
            raise ConflictError(
                f"Another run exported to {self._folder} meanwhile, or changed files of this export.",
                table=self._source.name,
                hint="Nothing was published; run again. Allow one run at a time per folder.",
            )


def _newest(exports: Mapping[str, Mapping[str, StoredFile]]) -> str | None:
    return max((name for name, files in exports.items() if MARKER in files), default=None)


def _number(name: str) -> int:
    return int(name.partition("-")[0])
