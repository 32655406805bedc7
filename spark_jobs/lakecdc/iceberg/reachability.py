"""The files that a table's metadata refers to, read from its manifest lists and manifests, each of them once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.iceberg.jvm import java_class_name, java_list, java_message, jvm, listed
from lakecdc.iceberg.stored_files import told_as_vanished

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

T = TypeVar("T")
_THREADS = 8
# what is read ahead of its use stays small
_WINDOW = 64


class MissingManifestError(InputError):
    """A manifest list or manifest that the metadata refers to is gone."""


def newest_metadata(table: IcebergTable, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The table's metadata as its catalog has it now, as the JSON document that Iceberg writes.

    Its log ends with the metadata file itself.

    :param known: the one read last, returned again if it still is the newest.
    :raises ConflictError: the table was dropped, or is another one by now.
    """
    before = table.uuid
    try:
        current = table.refresh().java.operations().current()
        here = str(current.metadataFileLocation())
        if known is not None and known["metadata-log"][-1]["metadata-file"] == here:
            return known
        found = _document(table, current)
    except Exception as error:
        raise ConflictError(
            f"Its metadata cannot be read any more: {java_message(error)}",
            table=table.name,
            hint="If it was dropped and made anew, run again for the new table; nothing more was changed.",
        ) from error
    if found["table-uuid"] != before:
        raise ConflictError(
            f"It was table {before} and is {found['table-uuid']} now.",
            table=table.name,
            hint="It was dropped and made anew; nothing more was changed.",
        )
    itself = {"metadata-file": here, "timestamp-ms": found["last-updated-ms"]}
    found["metadata-log"] = [*found.get("metadata-log", []), itself]
    return found


def read_metadata(table: IcebergTable, location: str) -> dict[str, Any]:
    """A metadata file below the table's location, whoever has written it.

    :raises VanishedError: there is no such file.
    """
    parser = jvm(table.spark).org.apache.iceberg.TableMetadataParser
    with told_as_vanished(table):
        return _document(table, parser.read(table.java.io(), location))


def _document(table: IcebergTable, metadata: Any) -> dict[str, Any]:
    # one call for what takes one for each snapshot otherwise
    found: dict[str, Any] = json.loads(jvm(table.spark).org.apache.iceberg.TableMetadataParser.toJson(metadata))
    return found


class ManifestReader(Generic[T]):
    """Reads manifest lists and manifests of a table, none of them twice.

    :param digest: makes a few bytes of the locations of many files; called in threads.
    """

    def __init__(self, table: IcebergTable, digest: Callable[[list[str]], T]) -> None:
        self._table, self._io, self._digest = table, table.java.io(), digest
        self._snapshots: set[int] = set()
        self._manifests = jvm(table.spark).java.util.HashSet()

    def new_files(self, metadata: Mapping[str, Any]) -> Iterator[T]:
        """Digests of what the metadata's snapshots refer to, as far as it has not been read before.

        What has been read only in part, because the caller stopped or a file is missing, is read again.

        :param metadata: its JSON document.
        :raises MissingManifestError: a manifest list or manifest is gone.
        """
        new = [s for s in metadata.get("snapshots", []) if s["snapshot-id"] not in self._snapshots]
        if not new:
            return
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
        # the table's own object would keep all that it reads
        parsed = jvm(self._table.spark).org.apache.iceberg.SnapshotParser.fromJson(json.dumps(snapshot))
        return parsed.allManifests(self._io)

    def _unread(self, manifests: Any) -> list[Any]:
        unread = jvm(self._table.spark).java.util.HashSet(manifests)
        unread.removeAll(self._manifests)
        return listed(unread)

    def _files(self, manifest: Any, specs: Any) -> list[str]:
        view = jvm(self._table.spark)
        paths = view.org.apache.iceberg.ManifestFiles.readPaths(manifest, self._io, specs)
        try:
            # one call for what takes two for each file otherwise
            joined = str(view.java.lang.String.join("\0", paths))
        finally:
            paths.close()
        return [str(manifest.path()), *filter(None, joined.split("\0"))]


def _windows(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while window := list(islice(rest, _WINDOW)):
        yield window
