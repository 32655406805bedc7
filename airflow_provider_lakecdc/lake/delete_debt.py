"""Delete debt: the delete files that readers of a table must apply, read through pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.live_files import live_files
from airflow_provider_lakecdc.lake.tables import (
    MAIN,
    branch_snapshots,
    partition_of,
    specs_by_dropped_columns,
    summary_of,
)
from lakecdc.metadata.debt import DeleteDebt, doubt, from_summaries
from lakecdc.metadata.file_facts import Content

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def debt_of(table: Table, branch: str = MAIN) -> DeleteDebt:
    """Read the live delete files of a branch.

    Usually the totals in snapshot summaries suffice, which costs one metadata file. Otherwise the branch's delete
    manifests are read; data manifests and data files never are.
    """
    snapshots = list(branch_snapshots(table, branch))
    debt = from_summaries([summary_of(snapshot) for snapshot in snapshots])
    return debt if debt is not None else _count(table, snapshots[0])


def removable_debt(table: Table, branch: str, debt: DeleteDebt) -> DeleteDebt:
    """Subtract the equality deletes that no run of rewrite_delete_files can convert; reads the delete manifests.

    The job uses the same rules (``lakecdc.maintain.delete_files.leftovers``); here they are applied to delete
    manifests.

    :param debt: the branch's whole debt, which is not 0.
    """
    skipped = list(_skipped_files(table, next(branch_snapshots(table, branch))))
    return replace(
        debt,
        equality_delete_files=max(0, debt.equality_delete_files - len(skipped)),
        equality_deletes=max(0, debt.equality_deletes - sum(file.record_count for file in skipped)),
    )


def _count(table: Table, snapshot: Snapshot) -> DeleteDebt:
    from pyiceberg.manifest import ManifestContent

    manifests = [each for each in snapshot.manifests(table.io) if each.content == ManifestContent.DELETES]
    files = list(live_files(table, manifests))
    equality = [file.rows for file in files if file.content is Content.EQUALITY_DELETES]
    position = [file.rows for file in files if file.content is not Content.EQUALITY_DELETES]
    return DeleteDebt(len(equality), sum(equality), len(position), sum(position))


def _skipped_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    from pyiceberg.manifest import DataFileContent, ManifestContent

    manifests = snapshot.manifests(table.io)
    # the types of all schemas' top-level columns, each from the newest schema that has it
    schemas = [*(schema for _, schema in sorted(table.schemas().items())), table.schema()]
    kinds = {field.field_id: str(field.field_type) for schema in schemas for field in schema.fields}
    lost = specs_by_dropped_columns(table) & {
        manifest.partition_spec_id
        for manifest in manifests
        if manifest.content == ManifestContent.DATA and (manifest.has_added_files() or manifest.has_existing_files())
    }
    equality = [
        entry.data_file
        for manifest in manifests
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES and entry.data_file.record_count
    ]
    stuck = {partition_of(file) for file in equality if "unreadable" in _doubts(file, kinds)}
    anywhere = bool(stuck or lost)
    unpartitioned = {number for number, spec in table.specs().items() if spec.is_unpartitioned()}
    for file in equality:
        scope_stays = anywhere if file.spec_id in unpartitioned else file.spec_id in lost or partition_of(file) in stuck
        if scope_stays or _doubts(file, kinds):
            yield file


def _doubts(file: DataFile, kinds: dict[int, str]) -> set[str]:
    return {reason for field_id in file.equality_ids or () if (reason := doubt(kinds.get(field_id)))}
