"""Remove rows from a table's files: files with a key are rewritten without it, and older snapshots expire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, UnsupportedError, VerificationError
from lakecdc.contract.expiring import ExpireSnapshotsOptions
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.erase.cursors import cursor_entries, position_without, side_of_without
from lakecdc.iceberg.bloom_columns import bloom_filter_columns, bloom_filter_properties
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.commit_outcome import discarded_on_conflict
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.fence import KnownHead, PositionFence
from lakecdc.iceberg.live_deletes import equality_deletes
from lakecdc.iceberg.manifests import drop_deleted_entries
from lakecdc.iceberg.partition_fields import fields_with_values
from lakecdc.iceberg.rewrite_tasks import plan_tasks, read_staged, removable_deletes
from lakecdc.iceberg.staging import discard, stage_rows, staged_tasks
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.protected import refuse_lost_partitions, refuse_shared_files
from lakecdc.metadata import names
from lakecdc.metadata.floor import ErasedAfter, erased_after
from lakecdc.metadata.positions import Carrier, beside_others, current_position
from lakecdc.runtime import failpoints

if TYPE_CHECKING:
    from lakecdc.erase.keys import Place

JOB = "erase_rows"
_ATTEMPTS = 4
# the newest format version whose manifests are decoded to prove that no key is left
_NEWEST_DECODED = 3
#: summary entries that describe only their own snapshot
_OWN = (
    names.CARRIED_BEFORE,
    names.ERASED_AFTER,
    names.JOB,
    names.COMMIT_ID,
    names.DELETE_SPECS,
    names.ROWS_BELOW,
    names.BRANCHED_FROM,
    names.SORTED_BY,
    names.ROWS_SORTED_BY,
)


def refuse_unsupported(place: Place) -> None:
    """Refuse a table with files that cannot be rewritten, decoded and deleted."""
    table = place.table
    refuse_shared_files(table)
    if table.is_encrypted:
        raise UnsupportedError("It is encrypted, and encrypted files cannot be decoded.", table=table.name)
    if table.format_version > _NEWEST_DECODED:
        raise UnsupportedError(
            f"It has format version {table.format_version}, whose metadata files cannot all be decoded.",
            table=table.name,
            hint="They may contain keys. Copy its rows to a table of format version 3.",
        )
    head = table.head()
    if head is None:
        return
    if columns := _keys_in_partitions(place):
        raise UnsupportedError(
            f"Its partitions by {columns} have key values, which stay in metadata and folder names.",
            table=table.name,
            hint="Partition it by bucket(…) of the key, move its rows with compact_data_files and older_specs, and "
            "expire the older snapshots.",
        )
    refuse_lost_partitions(table, head.id)
    if table.metadata("files").where("file_format NOT IN ('PARQUET', 'PUFFIN')").take(1):
        raise UnsupportedError(
            "It has files that are not Parquet, which cannot be decoded.",
            table=table.name,
            hint="Set write.format.default to parquet and rewrite them with compact_data_files.",
        )


def _keys_in_partitions(place: Place) -> str | None:
    """Return the key columns, if partitions of any snapshot expose the whole key."""
    if place.kind == "parked":
        # its rows are selected by the target's name, which is not a key
        return None
    manifests = place.table.metadata("all_manifests").select("partition_spec_id").distinct().collect()
    there = {int(row[0]) for row in manifests}
    key = {field.id: field.name for field in place.table.fields if field.name in place.columns}
    for spec_id, fields in fields_with_values(place.table).items():
        if spec_id in there and {*fields.values()} >= key.keys():
            return ", ".join(key.values())
    return None


def convert_equality_deletes(table: IcebergTable, spec: JobSpec) -> None:
    """Convert equality deletes, which contain keys, to position deletes, or refuse the table."""
    head = table.refresh().head()
    if head is None or not equality_deletes(table, head.id):
        return
    report = rewrite_delete_files(table, replace(spec, job="rewrite_delete_files", options=RewriteDeleteFilesOptions()))
    head = table.refresh().head()
    if head is not None and (left := equality_deletes(table, head.id)):
        raise UnsupportedError(
            f"Cannot convert {len(left)} of its equality deletes, which may contain keys: {report.reason}.",
            table=table.name,
            hint="Look up the limits of rewrite_delete_files, or run compact_data_files with max_equality_deletes.",
        )


def erase(place: Place, spec: JobSpec, check: Callable[[], None] | None = None) -> dict[str, int]:
    """Rewrite the files of one table that contain a key, and remove their entries from its current manifests.

    :param check: refuses the table as loaded, before anything is rewritten.
    :return: counts for the report.
    :raises ConflictError: other writers won every attempt.
    :raises VerificationError: the new files would not contain all other rows; nothing was published.
    """
    table, done = place.table, {"rows_erased": 0, "files_rewritten": 0}
    for attempt in range(_ATTEMPTS):
        convert_equality_deletes(table, spec)
        head = table.refresh().head()
        if head is None:
            return done
        if check is not None:
            check()
        try:
            counts = _rewrite_files(place, head)
            done = {name: count + counts[name] for name, count in done.items()}
            failpoints.reach("erase_before_entries")
            _drop_entries(place)
            return done
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def expire_all(table: IcebergTable, spec: JobSpec) -> int:
    """Expire every snapshot but the head, delete what becomes unreferenced, and count the expired snapshots."""
    options = ExpireSnapshotsOptions(max_age=0, retain_last=1)
    report = expire_snapshots(table, replace(spec, job="expire_snapshots", options=options))
    return int(report.metrics.get("snapshots_expired", 0))


def _rewrite_files(place: Place, head: Snapshot) -> dict[str, int]:
    table = place.table
    # selecting _deleted makes Spark read deleted rows too
    matching = place.holding(table.read(head.id, ["*", "_file", "_deleted"])).groupBy("_file")
    files = [row["_file"] for row in matching.agg(F.count_if("_deleted")).collect()]
    if not files:
        return {"rows_erased": 0, "files_rewritten": 0}
    tasks = plan_tasks(table, head.id, files)
    with staged_tasks(table, list(tasks.values())) as group:
        rows = read_staged(table.spark, group)
        # a separate pass, because an observation counts a retried task twice
        before = rows.count()
        staged = stage_rows(
            table,
            place.without(rows),
            properties=bloom_filter_properties(table, bloom_filter_columns(table)),
            output_spec_id=current_spec_id(table),
        )
    after = sum(int(file.recordCount()) for file in staged)
    # rows that only have a former key stay
    live = table.read(head.id)
    erased = live.join(F.broadcast(place.keys), list(place.columns), "left_semi").count()
    if before - after != erased:
        discard(table, staged)
        raise VerificationError(
            f"Expected {before - erased} of {before} rows to stay in files with a key, got {after}.",
            table=table.name,
            hint="Nothing was published.",
        )
    failpoints.reach("erase_before_commit")
    removed = list(tasks.values())
    changes = RowChanges(
        [file for file in staged if int(file.recordCount())],
        removed_rows=[task.file() for task in removed],
        removed_deletes=removable_deletes(table, removed),
        summary=_carried(place, erased),
    )
    with discarded_on_conflict(partial(discard, table, staged)):
        carrier, fence = _fence(table, head)
        append_changes(table, changes, fence, tag=names.POSITIONS_TAG if carrier else None)
    discard(table, [file for file in staged if not int(file.recordCount())])
    return {"rows_erased": erased, "files_rewritten": len(removed)}


def _drop_entries(place: Place) -> None:
    """Commit a head that carries the positions without key values, and has no entries of removed files."""
    table = place.table
    head = table.refresh().head()
    assert head is not None
    carrier, fence = _fence(table, head)
    tag = names.POSITIONS_TAG if carrier else None
    snapshot = drop_deleted_entries(table, fence, _carried(place), tag)
    # snapshots between the head and the positions' snapshot could not expire
    lies_behind = carrier is not None and carrier.snapshot_id != head.id
    has_keys = any(cursor_entries(entries, place.integers) for entries in (head.summary, table.properties))
    if snapshot is None and (lies_behind or has_keys):
        append_changes(table, RowChanges(summary=_carried(place)), fence, tag=tag)
    # an idle position extends the position of an older snapshot
    if idle := cursor_entries(table.refresh().properties, place.integers):
        table.update_properties(dict.fromkeys(idle))


def _fence(table: IcebergTable, head: Snapshot) -> tuple[Carrier | None, PositionFence]:
    carrier = carrier_of(table.ancestors())
    fence = PositionFence(carrier.text if carrier else None)
    fence.head = KnownHead(head.id, truncated=False)
    return carrier, fence


def _carried(place: Place, erased: int = 0) -> dict[str, str]:
    """Collect the summary entries of expiring snapshots that the remaining one must carry, without key values."""
    table = place.table
    entries: dict[str, Any] = {}
    for snapshot in table.ancestors():
        own = {key: value for key, value in snapshot.summary.items() if key.startswith("lakecdc.") and key not in _OWN}
        entries = own | entries
    carrier = carrier_of(table.ancestors())
    feed = carrier.position.feed if carrier else ""
    position = current_position(carrier, table.properties, feed)
    if carrier is not None and position is not None:
        position = position_without(beside_others(position, feed, carrier, table.properties), place.integers)
        through = {names.READ_THROUGH: position.table_through} if position.table_through else {}
        # the history table may be one batch ahead of one of these snapshots
        entries |= {names.POSITIONS: position.encode(), names.CARRIED_BEFORE: ",".join(carrier.ids), **through}
    entries |= side_of_without(entries, place.integers)
    return {**entries, **_erased_after(table.ancestors(), erased).encode(), names.JOB: JOB}


def _erased_after(ancestors: Iterable[Snapshot], rows: int) -> ErasedAfter:
    """Return the ids of the newest snapshots back to the last change of rows, and the number of erased rows."""
    ids = list[int]()
    for snapshot in ancestors:
        ids.append(snapshot.id)
        if (before := erased_after(snapshot.summary)) is not None:
            return ErasedAfter((*ids, *before.snapshots), rows + before.rows)
        if not snapshot.keeps_rows:
            break
    return ErasedAfter(tuple(ids), rows)
