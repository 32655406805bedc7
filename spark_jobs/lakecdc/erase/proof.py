"""Prove an erasure: every file of a table is decoded, including trash and unreferenced files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakecdc.erase.cursors import cursor_entries
from lakecdc.erase.decode import SCHEMA, KeySearch, search_files
from lakecdc.erase.keys import Place
from lakecdc.erase.mentions import Mentions
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.neighbours import folders
from lakecdc.iceberg.partition_fields import fields_with_values
from lakecdc.iceberg.reachability import newest_metadata
from lakecdc.iceberg.stored_files import VanishedError, read_bytes
from lakecdc.iceberg.table import IcebergTable
from lakecdc.iceberg.table_statistics import remove_statistics
from lakecdc.local_relation import spread
from lakecdc.maintain.metadata_versions import versions_of, wipe
from lakecdc.maintain.orphans.ledger import Ledger
from lakecdc.maintain.orphans.reachable import Reachable
from lakecdc.maintain.orphans.search import FOLDER, apart
from lakecdc.maintain.orphans.storage import TableStorage
from lakecdc.metadata.locations import canonical, resolve
from lakecdc.object_store.local import is_temporary
from lakecdc.object_store.versions import is_stub

_DECODED = (".parquet", ".avro", ".puffin", ".stats")
_WITHOUT_KEYS = (".crc", "version-hint.text")
# files named in a report
_MOST_NAMED = 20
#: suffixes of metadata files
METADATA = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


@dataclass
class Examined:
    """Search result for the files of one table.

    :param files: decoded, by kind.
    :param holding: files that contain a key, by kind.
    :param rows: rows with a key in Parquet files, deleted ones included.
    :param unknown: files that cannot be judged, and why.
    :param entries: of summaries and properties that contain a key.
    """

    files: dict[str, int] = field(default_factory=dict)
    holding: dict[str, list[str]] = field(default_factory=dict)
    rows: int = 0
    unknown: dict[str, str] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)

    def metrics(self, mentions: Mentions) -> dict[str, Any]:
        """Summarize the result for the report; names of undecoded files are shown without key values."""
        counts = {kind: len(files) for kind, files in self.holding.items()}
        not_judged = [f"{mentions.without_keys(path.rpartition('/')[2])}: {why}" for path, why in self.unknown.items()]
        numbers = {
            "files": self.files,
            "files_with_keys": counts,
            "rows": self.rows,
            "files_not_decoded": len(self.unknown),
        }
        lists = {"not_decoded": not_judged, "metadata_with_keys": sorted(self.entries)}
        return numbers | {name: texts[:_MOST_NAMED] for name, texts in lists.items()}


def examine(place: Place, mentions: Mentions) -> Examined:
    """Decode every file below a table's location, without changing anything."""
    table = place.table.refresh()
    storage, reachable = TableStorage(table), Reachable(table)
    metadata, examined, root = reachable.refresh(), Examined(), table.location
    deletes = {canonical(row[0], root) for row in table.metadata("all_delete_files").select("file_path").collect()}
    batches = [*Ledger(table, storage).batches()]
    marked = {canonical(file.location) for batch in batches for file in batch.files}
    ledger = {canonical(batch.document) for batch in batches}
    statistics = _statistics(table, metadata)
    listed = [each for each in _stored(table, storage, metadata) if canonical(each) not in ledger]
    listed = [each for each in listed if not each.endswith(_WITHOUT_KEYS)]

    def kind_of(location: str) -> str:
        name = canonical(location)
        if f"/{FOLDER}/" in name or name in marked:
            return "trash"
        if location not in reachable:
            return "unreferenced"
        if name in statistics:
            return "statistics"
        if location.endswith(".avro"):
            return "manifests"
        return "deletes" if name in deletes else "data"

    documents = {each for each in listed if each.endswith(METADATA) or is_temporary(each)}
    listed = [each for each in listed if each not in documents]
    for location in sorted(documents):
        _examine_metadata(table, location, mentions, examined, in_trash=kind_of(location) == "trash")
    readable = [each for each in listed if each.endswith(_DECODED) or canonical(each) in statistics]
    others = sorted({*listed} - {*readable})
    rows = _decoded(place, [(each, each in reachable) for each in readable], metadata)
    clean = {canonical(row["location"]) for row in rows if not row["rows"] and row["error"] is None}
    errors = {row["location"]: row["error"] for row in rows if row["error"] is not None}
    for location, error in {**dict.fromkeys(others, "not a kind of file that can be decoded"), **errors}.items():
        if kind_of(location) == "trash":
            # trash that cannot be decoded counts as containing a key: it is safe to delete
            _note(examined, "trash", location, has_key=True)
        else:
            examined.unknown[location] = error
    for row in rows:
        location = row["location"]
        if location in errors:
            continue
        examined.rows += row["rows"]
        # the bounds of a decoded file without keys come from other rows
        foreign = [name for name in row["entries"] if canonical(name, root) not in clean]
        # statistics of the head contain only keys that are in its files
        older = {*row["snapshots"]} - statistics.get(canonical(location), set())
        _note(examined, kind_of(location), location, has_key=bool(row["rows"] or foreign or older))
    return examined


def _stored(table: IcebergTable, storage: TableStorage, metadata: dict[str, Any]) -> Iterable[str]:
    """Return every file below the table's folders, and the versions of its metadata in any folder.

    When the table's location changes, a catalog leaves these versions in place.
    """
    versions = versions_of(table)
    former = versions.contents() if versions else ()
    newest = resolve(metadata["metadata-log"][-1]["metadata-file"], table.location)
    stored = {canonical(each): each for each in (newest, *former)}
    for folder in apart(folders(table.location, table.properties)):
        stored |= {canonical(f.location): f.location for f in storage.walk(folder) if not is_stub(f.location, f.bytes)}
    return stored.values()


def _examine_metadata(
    table: IcebergTable, location: str, mentions: Mentions, examined: Examined, *, in_trash: bool
) -> None:
    try:
        entries = entries_with_keys(table, location, mentions)
    except VanishedError:
        # concurrent commits delete old ones
        return
    except Exception:
        # its message may show a value
        if not in_trash:
            examined.unknown[location] = "metadata that cannot be decoded"
            return
        entries = {"unknown"}
    examined.entries |= entries
    _note(examined, "trash" if in_trash else "metadata", location, has_key=bool(entries))


def sweep(table: IcebergTable, examined: Examined) -> int:
    """Delete trashed files that contain a key, and return their number."""
    storage, deletable = TableStorage(table), {canonical(location) for location in examined.holding.get("trash", ())}
    ledger, count = Ledger(table, storage), 0
    for batch in ledger.batches():
        going = {file for file in batch.files if canonical(file.moved_to or file.location) in deletable}
        if going and not storage.delete([file.moved_to or file.location for file in going]):
            ledger.without(batch, going)
            count += len(going)
    return count


def drop_statistics(table: IcebergTable, examined: Examined) -> int:
    """Remove statistics files that contain a key from the metadata, delete them, and return their number."""
    deletable = {canonical(location) for location in examined.holding.get("statistics", ())}
    root = table.location
    dropped = remove_statistics(table, lambda location: canonical(location, root) in deletable) if deletable else []
    TableStorage(table).delete([resolve(location, root) for location in dropped])
    return len(dropped)


def _note(examined: Examined, kind: str, location: str, *, has_key: bool) -> None:
    examined.files[kind] = examined.files.get(kind, 0) + 1
    if has_key:
        examined.holding.setdefault(kind, []).append(location)


def _statistics(table: IcebergTable, metadata: dict[str, Any]) -> dict[str, set[int]]:
    head, root = table.head(), table.location
    return {
        canonical(each["statistics-path"], root): {each["snapshot-id"]} & ({head.id} if head else set())
        for kind in ("statistics", "partition-statistics")
        for each in metadata.get(kind, [])
    }


def _decoded(place: Place, files: Sequence[tuple[str, bool]], metadata: dict[str, Any]) -> list[Any]:
    table = place.table
    work = spread(table.spark, files, "location string, is_referenced boolean")
    task = partial(search_files, properties=storage_properties(table), search=_key_search(place, metadata))
    return run_tasks(work, task, SCHEMA).collect()


def _known_columns(metadata: dict[str, Any]) -> dict[int, set[str]]:
    known = dict[int, set[str]]()
    for schema in metadata["schemas"]:
        for column in schema["fields"]:
            known.setdefault(column["id"], set()).add(column["name"].lower())
    return known


def _key_search(place: Place, metadata: dict[str, Any]) -> KeySearch:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import NestedField

    fields = {field.name: field for field in place.table.fields}
    columns = [fields[name] for name in place.columns]
    ids = [column.id for column in columns]
    keys = place.keys.select(*place.columns).toArrow()
    bounds = []
    for column in columns:
        kind: Any = NestedField(field_id=column.id, name=column.name, field_type=column.type).field_type
        bounds.append([to_bytes(kind, value) for value in keys[column.name].to_pylist()])
    moved = None
    if place.moved is not None:
        texts = place.moved.toArrow().column(0).combine_chunks()
        (name,) = place.moved.columns
        moved = (fields[name].id, texts)
    specs = fields_with_values(place.table).values()
    partitions = [{field for spec in specs for field, column in spec.items() if column == number} for number in ids]
    return KeySearch(keys, ids, list(zip(*bounds, strict=True)), moved, partitions, _known_columns(metadata))


def delete_former(table: IcebergTable) -> int:
    """Delete or empty the table's metadata files, except the newest, and return their number.

    An object-store catalog empties all former versions; other catalogs delete the versions in the table's log.
    """
    if (wiped := wipe(table)) is not None:
        return wiped
    # none of these can become current again, unlike a file that a commit is about to publish
    log, root = newest_metadata(table)["metadata-log"], table.location
    *former, newest = [resolve(entry["metadata-file"], root) for entry in log]
    going = TableStorage(table).find({*former} - {newest})
    TableStorage(table).delete([*going])
    return len(going)


def entries_with_keys(table: IcebergTable, location: str, mentions: Mentions) -> set[str]:
    """Return the names of summary entries and properties in a metadata file that contain a key."""
    content = read_bytes(table, location)
    document = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    if isinstance(document, int):
        # version-hint.text: the number of a version
        return set()
    entries = [document.get("properties", {}), *(each.get("summary", {}) for each in document.get("snapshots", []))]
    return {mentions.without_keys(name) for each in entries for name in _holding(each, mentions)}


def _holding(entries: dict[str, str], mentions: Mentions) -> list[str]:
    # other entries of lakecdc contain ids and counts, never row values
    others = {name: text for name, text in entries.items() if not name.startswith("lakecdc.")}
    single = [name for name, text in others.items() if mentions.in_settings({name: text})]
    if not single and mentions.in_settings(others):
        # a key of several columns may be spread over entries
        single = sorted(others)
    return [*cursor_entries(entries, mentions.integers), *single]
