"""Rewrite manifests if many small ones slow down planning."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructType

from lakecdc.contract.errors import VerificationError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewriteManifestsOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg import manifests as iceberg
from lakecdc.iceberg.commit_outcome import discarded_on_conflict
from lakecdc.iceberg.file_io import discard_files
from lakecdc.iceberg.manifests import StagedManifests, staged_entries
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.failed_files import discarded_on_failure
from lakecdc.maintain.reports import dry_run, empty, ends, nothing, seconds_since
from lakecdc.maintain.verify_rows import Proof, read_back
from lakecdc.metadata import names
from lakecdc.metadata.manifests import (
    Manifest,
    manifest_counts,
    manifest_target_bytes,
    planned_manifests,
    refusal,
    worthwhile_specs,
)
from lakecdc.runtime import failpoints
from lakecdc.sql import quoted_column

JOB = "rewrite_manifests"
_ITS_OWN = ("snapshot_id", "sequence_number", "file_sequence_number")
_NAME = ("file_path", "content_offset")
#: number of differing entries to inspect for the error
_SOME = 1000


def rewrite_manifests(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Rewrite the manifests of one table if many are small and fewer suffice.

    Manifests of a partition spec whose column was dropped stay: Iceberg would write them without partition values.

    :raises ConflictError: another writer was faster.
    :raises VerificationError: the new manifests would list other files; nothing was published.
    """
    options, head = spec.options_as(RewriteManifestsOptions), table.refresh().head()
    if head is None:
        return empty(table)
    current, target = iceberg.manifests(table), manifest_target_bytes(table.properties)
    counts = manifest_counts(current, "before")
    lost = specs_by_dropped_columns(table)
    rewritable = [m for m in current if m.spec_id not in lost]
    reason = refusal(rewritable, options, target)
    if reason:
        return nothing(table, reason, head, **counts)
    worth_it = worthwhile_specs(rewritable, target)
    counts |= {"manifests_planned": planned_manifests(current, worth_it, target)}
    if options.dry_run:
        return dry_run(table, head, **counts, specs=worth_it)
    started = time.monotonic()
    staged = iceberg.stage_manifests(table, worth_it, {names.JOB: JOB})
    discarding = partial(discard_files, table, staged.files)
    with discarded_on_failure(staged.files, discarding, keep_failed=options.keep_failed_files):
        failpoints.reach("manifests_staged")
        check_entries(table, staged)
        failpoints.reach("manifests_before_commit")
    with discarded_on_conflict(discarding):
        after = iceberg.publish_manifests(table, staged)
    metrics = {**counts, **manifest_counts(staged.after, "after"), "specs": worth_it, "seconds": seconds_since(started)}
    return TableReport(table.name, "done", **ends(head, after), metrics=metrics)


def check_entries(table: IcebergTable, staged: StagedManifests) -> None:
    """Raise VerificationError unless rewritten manifests have the same live entries as a snapshot.

    The digests cover the file, its sequence numbers, snapshot and partition, the file that a delete references, row ids
    and metrics.
    """
    difference = count_difference(staged.before, staged.after)
    if difference:
        raise _refusal(table, difference)
    old, new = (
        comparable_entries(table.metadata("entries", staged.base)),
        comparable_entries(staged_entries(table, staged)),
    )
    proof = Proof(tuple(old.columns), "all entries")
    if old.columns == new.columns and read_back(old, proof) == read_back(new, proof):
        return
    lost, added = ([row.asDict() for row in a.exceptAll(b).limit(_SOME).collect()] for a, b in ((old, new), (new, old)))
    raise _refusal(table, entry_difference(lost, added))


def comparable_entries(entries: DataFrame) -> DataFrame:
    """Select the live rows of the metadata table ``entries``, with each fact as a comparable column."""
    fields = [field.name for field in entries.schema["data_file"].dataType.fields]  # type: ignore[attr-defined]
    facts = [_comparable(entries, f"data_file.{quoted_column(field)}", field) for field in fields]
    return entries.where(F.col("status") < 2).select(*_ITS_OWN, *facts)


def count_difference(before: Iterable[Manifest], after: Iterable[Manifest]) -> str | None:
    """Describe a difference in the live file counts of manifest lists, which readers use to skip manifests."""
    old, new = _counted(before), _counted(after)
    for spec_id, deletes in sorted(old.keys() | new.keys()):
        if old[spec_id, deletes] != new[spec_id, deletes]:
            kind = "delete" if deletes else "data"
            return (
                f"{new[spec_id, deletes]} {kind} files of partition spec {spec_id} instead of {old[spec_id, deletes]}"
            )
    return None


def entry_difference(lost: Sequence[Mapping[str, Any]], added: Sequence[Mapping[str, Any]]) -> str:
    """Describe the first difference between lost or changed entries and new or changed entries."""
    by_name = {_name(entry): entry for entry in added}
    for entry in lost:
        other = by_name.get(_name(entry))
        if other is None:
            return f"not {entry['file_path']} (of {len(lost)} entries that are lost or changed)"
        changed = ", ".join(f"{key} {other[key]} instead of {entry[key]}" for key in entry if entry[key] != other[key])
        return f"{entry['file_path']} with {changed}"
    return f"also {added[0]['file_path']}" if added else "entries with other columns"


def _counted(manifests: Iterable[Manifest]) -> Counter[tuple[int, bool]]:
    counts = Counter[tuple[int, bool]]()
    for manifest in manifests:
        counts[manifest.spec_id, manifest.deletes] += manifest.files
    return counts


def _name(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in _NAME)


def _comparable(entries: DataFrame, column: str, name: str) -> Column:
    """Convert a fact to a form that Spark can hash and compare, including nulls."""
    kind, value = entries.select(column).schema[0].dataType, F.col(column)
    if isinstance(kind, MapType):
        value = F.sort_array(F.map_entries(value))
    elif isinstance(kind, StructType):
        # a hash skips nulls, so (null, 1) and (1, null) would be equal
        value = F.to_json(value)
    return value.alias(name)


def _refusal(table: IcebergTable, difference: str) -> VerificationError:
    return VerificationError(
        f"The rewritten manifests would not list the same files: {difference}.",
        table=table.name,
        hint="Nothing was published. If it happens again, check the storage and the Iceberg version.",
    )
