"""Files that a table's metadata references, read from its manifest lists and manifests, each once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import Any, Generic, TypeVar

from lakecdc.contract.errors import ConflictError, InputError, UnsupportedError
from lakecdc.iceberg.jvm import java_class_name, java_list, java_message, jvm, listed
from lakecdc.iceberg.stored_files import vanished_errors
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.locations import is_relative, readings, resolve

T = TypeVar("T")
_THREADS = 8
# limit of what is read ahead
_WINDOW = 64


class MissingManifestError(InputError):
    """A manifest list or manifest that the metadata references is missing.

    Remedy: Restore the file from a backup or the trash of the store, or roll the table back to a snapshot without it.
    """


def newest_metadata(table: IcebergTable, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read the table's current metadata from its catalog as Iceberg's JSON; ``known`` if it is still current.

    Its log ends with the metadata file itself.

    :raises ConflictError: the table was dropped or replaced.
    """
    before = table.uuid
    try:
        current = table.refresh().java.operations().current()
        here = str(current.metadataFileLocation())
        if known is not None and known["metadata-log"][-1]["metadata-file"] == here:
            return known
        document = _document(table, current)
    except Exception as error:
        raise ConflictError(
            f"Cannot read its metadata: {java_message(error)}",
            table=table.name,
            hint="If it was dropped and recreated, run again for the new table; nothing more was changed.",
        ) from error
    if document["table-uuid"] != before:
        raise ConflictError(
            f"Its UUID changed from {before} to {document['table-uuid']}.",
            table=table.name,
            hint="It was dropped and recreated. Nothing more was changed; run again.",
        )
    itself = {"metadata-file": here, "timestamp-ms": document["last-updated-ms"]}
    document["metadata-log"] = [*document.get("metadata-log", []), itself]
    return document


def read_metadata(table: IcebergTable, location: str) -> dict[str, Any]:
    """Read a metadata file below the table's location, of any writer.

    :raises VanishedError: the file does not exist.
    """
    parser = jvm(table.spark).org.apache.iceberg.TableMetadataParser
    with vanished_errors(table):
        return _document(table, parser.read(table.java.io(), location))


def _document(table: IcebergTable, metadata: Any) -> dict[str, Any]:
    # one call instead of one per snapshot
    document: dict[str, Any] = json.loads(jvm(table.spark).org.apache.iceberg.TableMetadataParser.toJson(metadata))
    return document


class ManifestReader(Generic[T]):
    """Reads a table's manifest lists and manifests, each once; ``digest`` reduces their locations, in threads.

    Relative locations are resolved against the table's.
    """

    def __init__(self, table: IcebergTable, digest: Callable[[list[str]], T]) -> None:
        self._table, self._io, self._root = table, table.java.io(), table.location
        self._digest = digest
        self._snapshots: set[int] = set()
        self._manifests = jvm(table.spark).java.util.HashSet()

    def new_files(self, metadata: Mapping[str, Any]) -> Iterator[T]:
        """Yield digests of the files that the metadata's snapshots reference and that were not read before.

        What was read only in part, because the caller stopped or a file is missing, is read again.

        :raises MissingManifestError: a manifest list or manifest is missing.
        :raises UnsupportedError: a manifest cannot be opened.
        """
        unread = [s for s in metadata.get("snapshots", []) if s["snapshot-id"] not in self._snapshots]
        if not unread:
            return
        new = [s | {kind: resolve(s[kind], self._root) for kind in ("manifest-list",) if kind in s} for s in unread]
        yield self._digest([s["manifest-list"] for s in new if "manifest-list" in s])
        specs = jvm(self._table.spark).org.apache.iceberg.TableMetadataParser.fromJson(json.dumps(metadata)).specsById()
        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                for group in _windows(new):
                    for manifests in pool.map(self._manifests_of, group):
                        for window in _windows(self._unread(manifests)):
                            yield from pool.map(lambda manifest: self._digest(self._files(manifest, specs)), window)
                            self._manifests.addAll(java_list(self._table.spark, window))
        except Exception as error:
            if java_class_name(error) != "NotFoundException":
                raise
            raise MissingManifestError(java_message(error)) from error
        self._snapshots.update(s["snapshot-id"] for s in new)

    def _manifests_of(self, snapshot: Mapping[str, Any]) -> Any:
        # the table's own object would cache everything that it reads
        parsed = jvm(self._table.spark).org.apache.iceberg.SnapshotParser.fromJson(json.dumps(snapshot))
        return parsed.allManifests(self._io)

    def _unread(self, manifests: Any) -> list[Any]:
        unread = jvm(self._table.spark).java.util.HashSet(manifests)
        unread.removeAll(self._manifests)
        return listed(unread)

    def _files(self, manifest: Any, specs: Any) -> list[str]:
        location = str(manifest.path())
        if is_relative(location):
            raise UnsupportedError(
                f"Its manifest {location} has a relative location, which this version of Iceberg cannot open.",
                table=self._table.name,
                hint="Its needed files are unknown, so none is removed. Remove orphans with the engine that writes it.",
            )
        view = jvm(self._table.spark)
        with closing(view.org.apache.iceberg.ManifestFiles.readPaths(manifest, self._io, specs)) as paths:
            # one call instead of two per file
            joined = str(view.java.lang.String.join("\0", paths))
        return [location, *(at for file in joined.split("\0") if file for at in readings(file, self._root))]


def _windows(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while window := list(islice(rest, _WINDOW)):
        yield window
