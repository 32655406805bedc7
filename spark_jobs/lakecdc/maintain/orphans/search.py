"""Search a table's folders for unreferenced files, in bounded memory; some names never count as unreferenced."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any
from urllib.parse import unquote

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.stored_files import StoredFile, VanishedError
from lakecdc.maintain.findings import spool
from lakecdc.maintain.orphans.storage import TableStorage
from lakecdc.metadata.locations import place, relative
from lakecdc.metadata.marked_folders import Mark, mark_in
from lakecdc.object_store.names import CATALOG_FOLDER

log = logging.getLogger(__name__)
_ATTEMPTS = 5
_EXAMPLES = 10
_COUNTED = (
    *("files_listed", "bytes_listed", "files_reachable", "files_too_young", "files_hidden"),
    *("metadata_files", "orphan_files", "orphan_bytes"),
)
# maximum number of writers in the report, and of counted writers for a table that was never cleaned
_WRITERS, _MOST_WRITERS = 20, 10_000

#: folder below a location for this job's files; engines and clean-ups ignore such names
FOLDER = "_lakecdc_orphans"
_TABLE_METADATA = (".metadata.json", ".metadata.json.gz", "version-hint.text")


@dataclass
class SearchResult:
    """Result of a search below a table's folders.

    :param metadata_files: versions of table metadata, which are never touched.
    :param writers: writers of orphans in marked folders, with the number of files and bytes.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    metadata_files: list[StoredFile] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    oldest_ms: int | None = None
    writers: dict[Mark, list[int]] = field(default_factory=dict)
    # most tables have few orphans, but a table that was never cleaned may have millions
    _orphans: SpooledTemporaryFile[bytes] = field(default_factory=spool)

    def add_orphan(self, file: StoredFile, name: str) -> None:
        """Add an unreferenced file, with its name relative to the table's folder."""
        self._orphans.write(json.dumps([file.location, file.bytes, file.modified_ms]).encode() + b"\n")
        self.counts["orphan_files"] += 1
        self.counts["orphan_bytes"] += file.bytes
        self.oldest_ms = file.modified_ms if self.oldest_ms is None else min(self.oldest_ms, file.modified_ms)
        if len(self.examples) < _EXAMPLES:
            self.examples.append(file.location)
        writer = mark_in(name)
        if writer is not None and (writer in self.writers or len(self.writers) < _MOST_WRITERS):
            left = self.writers.setdefault(writer, [0, 0])
            left[0], left[1] = left[0] + 1, left[1] + file.bytes

    def batches(self, size: int) -> Iterator[list[StoredFile]]:
        self._orphans.seek(0)
        while lines := list(islice(self._orphans, size)):
            yield [StoredFile(*json.loads(line)) for line in lines]

    def metrics(self) -> dict[str, Any]:
        most = sorted(self.writers.items(), key=lambda each: (-each[1][1], each[0].start))[:_WRITERS]
        writers = [
            {"job": writer.job, "started": writer.started, "application": writer.application, "files": n, "bytes": size}
            for writer, (n, size) in most
        ]
        return {**self.counts, "orphan_examples": self.examples, "orphan_writers": writers}


@dataclass(frozen=True)
class Question:
    """Parameters of a search.

    :param explained: check whether a location must stay.
    :param before_ms: files modified at this time or later are ignored; milliseconds since 1970.
    :param partition_fields: names of partition fields, whose folders may begin like hidden ones.
    :param waiting: check whether an orphan is already marked for deletion.
    """

    table: str
    folders: Sequence[str]
    explained: Callable[[str], bool]
    before_ms: int
    partition_fields: Collection[str]
    waiting: Callable[[str], bool]


def search(question: Question, storage: TableStorage) -> SearchResult:
    """Search all folders; raise ConflictError if they vanish faster than they can be listed."""
    for _ in range(_ATTEMPTS):
        result = SearchResult()
        try:
            for folder in apart(question.folders):
                for file in storage.walk(folder):
                    _judge(question, file, relative(file.location, folder), result)
            return result
        except VanishedError as error:
            log.info("%s: listing again: %s", question.table, error)
    raise ConflictError("Folders vanish faster than they can be listed.", table=question.table, hint="Run again.")


def apart(folders: Sequence[str]) -> list[str]:
    """Drop folders that are inside others."""
    outer: list[str] = []
    for folder in sorted(folders, key=lambda each: len(place(each).path)):
        if not any(place(folder).meets(place(other)) for other in outer):
            outer.append(folder.rstrip("/"))
    return outer


def _judge(question: Question, file: StoredFile, name: str, result: SearchResult) -> None:
    counts = result.counts
    counts["files_listed"] += 1
    counts["bytes_listed"] += file.bytes
    if is_table_metadata(name):
        counts["metadata_files"] += 1
        result.metadata_files.append(file)
    elif is_hidden(name, question.partition_fields):
        counts["files_hidden"] += 1
    elif question.explained(file.location):
        counts["files_reachable"] += 1
    elif file.modified_ms >= question.before_ms:
        counts["files_too_young"] += 1
    elif not question.waiting(file.location):
        result.add_orphan(file, name)


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
