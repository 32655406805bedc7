"""Rewriting of manifests where many small ones slow down planning."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewriteManifestsOptions
from lakecdc.iceberg import manifests as iceberg
from lakecdc.iceberg.file_io import discard_files
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.maintain.failed_files import discarded_on_failure
from lakecdc.maintain.rewrite import nothing
from lakecdc.maintain.verify_entries import check_entries
from lakecdc.metadata import names
from lakecdc.metadata.manifests import (
    manifest_counts,
    manifest_target_bytes,
    planned_manifests,
    refusal,
    worthwhile_specs,
)
from lakecdc.runtime import failpoints

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable

JOB = "rewrite_manifests"


def rewrite_manifests(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Rewrite the manifests of one table if there are many small ones and fewer would do.

    Manifests of a partition spec whose column was dropped stay, because Iceberg would write them without partition
    values.

    :raises ConflictError: another writer was faster.
    :raises VerificationError: the new manifests would list other files; nothing was published.
    """
    options, head = spec.options, table.refresh().head()
    assert isinstance(options, RewriteManifestsOptions)
    if head is None:
        return nothing(table, "the table has no snapshot")
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
        return nothing(table, "dry run: nothing was changed", head, **counts, specs=worth_it)
    started = time.monotonic()
    staged = iceberg.stage_manifests(table, worth_it, {names.JOB: JOB})
    discarding = partial(discard_files, table, staged.files)
    with discarded_on_failure(staged.files, discarding, keep_failed=options.keep_failed_files):
        failpoints.reach("manifests_staged")
        check_entries(table, staged)
        failpoints.reach("manifests_before_commit")
    try:
        after = iceberg.publish_manifests(table, staged)
    except ConflictError:
        # after any other failure the commit may have arrived
        discarding()
        raise
    facts = counts | manifest_counts(staged.after, "after") | {"specs": worth_it}
    return TableReport(
        table.name,
        "done",
        snapshot_before=str(head.id),
        snapshot_after=str(after.id),
        metrics=facts | {"seconds": round(time.monotonic() - started, 3)},
    )
