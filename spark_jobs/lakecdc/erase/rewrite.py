"""Rows out of a table's files: the files that hold a key are written anew without it, and what reached them expires."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, UnsupportedError, VerificationError
from lakecdc.contract.options import ExpireSnapshotsOptions, RewriteDeleteFilesOptions
from lakecdc.erase.cursors import cursor_entries, position_without, side_of_without
from lakecdc.iceberg.bloom_columns import bloom_filter_columns, bloom_filter_properties
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.deleted_entries import drop_deleted_entries
from lakecdc.iceberg.fence import KnownHead, PositionFence
from lakecdc.iceberg.live_deletes import equality_deletes
from lakecdc.iceberg.partition_fields import fields_with_values
from lakecdc.iceberg.rewrite_tasks import plan_tasks, read_staged, removable_deletes
from lakecdc.iceberg.scan import specs_losing_partitions
from lakecdc.iceberg.staging import discard, stage_rows, staged_tasks
from lakecdc.iceberg.table import carrier_of, facts_of
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.shared_files import refuse_shared_files
from lakecdc.metadata import names
from lakecdc.metadata.erasure import ErasedAfter, erased_after
from lakecdc.metadata.positions import current_position
from lakecdc.runtime import failpoints

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.erase.places import Place
    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.metadata.positions import Carrier

JOB = "erase_rows"
_ATTEMPTS = 4
#: what a snapshot says of itself alone
_OWN = (
    names.CARRIED_BEFORE,
    names.ERASED_AFTER,
    names.JOB,
    names.COMMIT_ID,
    names.DELETE_SPECS,
    names.BRANCHED_FROM,
    names.SORTED_BY,
    names.ROWS_SORTED_BY,
)


def refuse_unsupported(place: Place) -> None:
    """Refuse a table of which not every file can be rewritten, decoded and deleted.

    :raises UnsupportedError: saying why.
    """
    table = place.table
    refuse_shared_files(table)
    if table.is_encrypted:
        raise UnsupportedError("It is encrypted, and its files cannot be decoded here.", table=table.name)
    head = table.head()
    if head is None:
        return
    if told := _told_by_partitions(place):
        raise UnsupportedError(
            f"Its partitions by {told} have the values of keys for names, which metadata and folders keep.",
            table=table.name,
            hint="Partition it by bucket(…) of the key, have compact_data_files with older_specs move its rows, and "
            "expire the snapshots before.",
        )
    if specs_losing_partitions(table, head.id):
        raise UnsupportedError(
            "It has data files of a partition spec whose column was dropped, whose manifests would be made anew.",
            table=table.name,
            hint="Run compact_data_files first, which moves their rows to the current spec.",
        )
    if table.metadata("files").where("file_format NOT IN ('PARQUET', 'PUFFIN')").take(1):
        raise UnsupportedError(
            "It has files that are not Parquet, which cannot be decoded here.",
            table=table.name,
            hint="Set write.format.default to parquet and rewrite them with compact_data_files.",
        )


def _told_by_partitions(place: Place) -> str | None:
    """Columns of the key that partitions are called by, if they are the whole key; of all files that snapshots have."""
    if place.kind == "parked":
        # it is searched by the target's name, which is no key
        return None
    manifests = place.table.metadata("all_manifests").select("partition_spec_id").distinct().collect()
    there = {int(row[0]) for row in manifests}
    key = {field.id: field.name for field in place.table.fields if field.name in place.columns}
    for spec_id, fields in fields_with_values(place.table).items():
        if spec_id in there and {*fields.values()} >= key.keys():
            return ", ".join(key.values())
    return None


def convert_equality_deletes(table: IcebergTable, spec: JobSpec) -> None:
    """Replace equality deletes, which hold keys, by positions.

    :raises UnsupportedError: some cannot be converted.
    """
    head = table.refresh().head()
    if head is None or not equality_deletes(table, head.id):
        return
    told = rewrite_delete_files(table, replace(spec, job="rewrite_delete_files", options=RewriteDeleteFilesOptions()))
    head = table.refresh().head()
    if head is not None and (left := equality_deletes(table, head.id)):
        raise UnsupportedError(
            f"{len(left)} of its equality deletes cannot be converted, and may hold keys: {told.reason}.",
            table=table.name,
            hint="See what stays at rewrite_delete_files, and compact_data_files with max_equality_deletes.",
        )


def erase(place: Place, spec: JobSpec, check: Callable[[], None] | None = None) -> dict[str, int]:
    """Rewrite the files of one table that hold a key, and leave no entry of them behind in its newest manifests.

    :param check: refuses the table as it has been loaded; nothing else is rewritten.
    :return: what was done, for the report.
    :raises ConflictError: other writers were faster, again and again.
    :raises VerificationError: the new files would not hold all other rows; nothing was published.
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
            found = _rewrite_files(place, head)
            done = {name: count + found[name] for name, count in done.items()}
            failpoints.reach("erase_before_entries")
            _leave_no_entries(place)
            return done
        except ConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def expire_all(table: IcebergTable, spec: JobSpec) -> int:
    """Expire every snapshot but the head, and delete the files that nothing refers to any more.

    :return: how many have gone.
    """
    options = ExpireSnapshotsOptions(max_age=0, retain_last=1)
    told = expire_snapshots(table, replace(spec, job="expire_snapshots", options=options))
    return int(told.metrics.get("snapshots_expired", 0))


def _rewrite_files(place: Place, head: Snapshot) -> dict[str, int]:
    table = place.table
    # rows that are deleted are read as long as somebody asks whether they are
    held = place.holding(table.read(head.id, "*, _file, _deleted")).groupBy("_file")
    files = [row["_file"] for row in held.agg(F.count_if("_deleted")).collect()]
    if not files:
        return {"rows_erased": 0, "files_rewritten": 0}
    tasks = plan_tasks(table, head.id, files)
    with staged_tasks(table, list(tasks.values())) as group:
        rows = read_staged(table.spark, group)
        # a pass of its own: Spark observes the rows of a task again that runs again
        before = rows.count()
        staged = stage_rows(
            table,
            place.without(rows),
            properties=bloom_filter_properties(table, bloom_filter_columns(table)),
            output_spec_id=current_spec_id(table),
        )
    after = sum(int(file.recordCount()) for file in staged)
    erased = _live_rows_of_keys(place, head)
    if before - after != erased:
        discard(table, staged)
        raise VerificationError(
            f"Of {before} rows in files with a key {after} would stay, and {erased} have one of the keys.",
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
    try:
        carrier, fence = _fence(table, head)
        append_changes(table, changes, fence, tag=names.POSITIONS_TAG if carrier else None)
    except ConflictError:
        # after any other error the commit may have arrived
        discard(table, staged)
        raise
    discard(table, [file for file in staged if not int(file.recordCount())])
    return {"rows_erased": erased, "files_rewritten": len(removed)}


def _live_rows_of_keys(place: Place, head: Snapshot) -> int:
    """Rows that go; rows that only told a former key stay."""
    rows = place.table.read(head.id)
    return rows.join(F.broadcast(place.wanted), list(place.columns), "left_semi").count()


def _leave_no_entries(place: Place) -> None:
    """Make a snapshot the head that carries the positions and whose manifests name none of the files that went.

    No position holds a value of a key then.
    """
    table = place.table
    head = table.refresh().head()
    assert head is not None
    carrier, fence = _fence(table, head)
    tag = names.POSITIONS_TAG if carrier else None
    made = drop_deleted_entries(table, fence, _carried(place), tag)
    # what lies between the two could not expire
    lies_behind = carrier is not None and carrier.snapshot_id != head.id
    told = any(cursor_entries(entries, place.integers) for entries in (head.summary, table.properties))
    if made is None and (lies_behind or told):
        append_changes(table, RowChanges(summary=_carried(place)), fence, tag=tag)
    # it continues the position of a snapshot before
    if cursor_entries(table.refresh().properties, place.integers):
        table.update_properties({names.IDLE_POSITION: None})


def _fence(table: IcebergTable, head: Snapshot) -> tuple[Carrier | None, PositionFence]:
    carrier = carrier_of(table.ancestors())
    fence = PositionFence(carrier.text if carrier else None)
    fence.head = KnownHead(head.id, truncated=False)
    return carrier, fence


def _carried(place: Place, erased: int = 0) -> dict[str, str]:
    """What the snapshots that go say of the table, for the one that stays, without values of keys.

    :param erased: rows that it lacks.
    """
    table = place.table
    found: dict[str, Any] = {}
    for snapshot in table.ancestors():
        told = {key: value for key, value in snapshot.summary.items() if key.startswith("lakecdc.") and key not in _OWN}
        found = told | found
    carrier = carrier_of(table.ancestors())
    position = current_position(carrier, table.properties)
    if carrier is not None and position is not None:
        position = position_without(position, place.integers)
        through = {names.READ_THROUGH: position.read_through} if position.read_through else {}
        # its history table may have a batch that comes after one of these, and that the table has not taken
        found |= {names.POSITIONS: position.encode(), names.CARRIED_BEFORE: ",".join(carrier.ids), **through}
    found |= side_of_without(found, place.integers)
    return {**found, **_erased_after(table.ancestors(), erased).encode(), names.JOB: JOB}


def _erased_after(ancestors: Iterable[Snapshot], rows: int) -> ErasedAfter:
    """The snapshots back to one that has changed something else."""
    found = list[int]()
    for snapshot in ancestors:
        found.append(snapshot.id)
        if (before := erased_after(snapshot.summary)) is not None:
            return ErasedAfter((*found, *before.snapshots), rows + before.rows)
        if not facts_of(snapshot).keeps_rows:
            break
    return ErasedAfter(tuple(found), rows)
