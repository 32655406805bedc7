"""A look at tables before Spark is started for them: those that need nothing of a job are reported without it.

The look is through pyiceberg, at metadata alone, and decides by what the jobs themselves decide by
(``lakecdc.metadata``). What it cannot tell for certain is left to the job.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.live_files import live_files
from airflow_provider_lakecdc.sorted_columns import sorted_columns
from airflow_provider_lakecdc.tables import MAIN, branch_snapshots, specs_by_dropped_columns, summary_of
from lakecdc.contract.options import (
    CompactDataFilesOptions,
    ExpireSnapshotsOptions,
    RewriteDeleteFilesOptions,
    RewriteManifestsOptions,
    SortDataFilesOptions,
)
from lakecdc.contract.report import TableReport
from lakecdc.metadata import names, totals
from lakecdc.metadata.compaction_reasons import Reasons, none_speaks, reasons
from lakecdc.metadata.expiry import cutoff_ms, may_expire, none_can_go
from lakecdc.metadata.file_facts import by_partition
from lakecdc.metadata.file_sizes import target_file_bytes, written_file_bytes
from lakecdc.metadata.manifests import Manifest, manifest_counts, manifest_target_bytes, refusal
from lakecdc.metadata.order import UNSORTED, average_depth, in_order, keyed_rows, linear_depth
from lakecdc.metadata.settled_deletes import NOTHING, are_settled

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from lakecdc.contract.spec import JobSpec

log = logging.getLogger(__name__)

#: live files of a table above which its manifests are left to Spark, whose tasks read them side by side
MOST_FILES = 20_000
_THREADS = 4
_EMPTY = "the table has no snapshot"


@dataclass(frozen=True)
class FirstLook:
    """What a job has left to do.

    :param idle: reports of the tables that need nothing; none if nobody has looked.
    :param left: the others, side tables among them.
    """

    idle: tuple[TableReport, ...] = ()
    left: frozenset[str] = frozenset()

    @property
    def is_all_idle(self) -> bool:
        """Whether no table is left to the job."""
        return bool(self.idle) and not self.left


def look(catalog: CatalogConnection, spec: JobSpec) -> FirstLook:
    """Tell the tables of a job apart: those that need nothing of it, and all others.

    A side table that does not exist is in neither. One that cannot be looked at is left to the job.
    """
    named = list(dict.fromkeys((*spec.tables, *getattr(spec.options, "side_tables", ()))))
    if spec.job not in _LOOKS or spec.options.dry_run:
        return FirstLook()
    # clients of some catalogs are not for several threads, so that each has its own
    parts = [part for number in range(_THREADS) if (part := named[number::_THREADS])]
    found: dict[str, TableReport | None] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for reports in pool.map(partial(_look_at, catalog, spec), parts):
            found |= reports
    idle = tuple(report for name in named if (report := found.get(name)) is not None)
    return FirstLook(idle, frozenset(name for name, report in found.items() if report is None))


def _look_at(catalog: CatalogConnection, spec: JobSpec, tables: Sequence[str]) -> dict[str, TableReport | None]:
    """Reports of the tables that need nothing, None for those left to the job; no entry for an absent side table."""
    found: dict[str, TableReport | None] = dict.fromkeys(tables)
    try:
        with closing(catalog.load()) as opened:
            for name in tables:
                if (table := _open(opened, name)) is not None:
                    found[name] = _report(table, name, spec)
                elif name not in spec.tables:
                    del found[name]
    except Exception:
        log.warning("Not all tables can be looked at from here; the others are left to Spark.", exc_info=True)
    return found


def _open(catalog: Catalog, name: str) -> Table | None:
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _report(table: Table, name: str, spec: JobSpec) -> TableReport | None:
    """The report of a table that needs nothing; None if it is left to the job."""
    try:
        return _idle(table, name, spec)
    except Exception:
        log.warning("%s cannot be looked at from here, and is left to Spark.", name, exc_info=True)
        return None


def _idle(table: Table, name: str, spec: JobSpec) -> TableReport | None:
    branch = getattr(spec.options, "branch", MAIN)
    head = next(branch_snapshots(table, branch), None)
    if head is None:
        return TableReport(name, "nothing", _EMPTY) if branch == MAIN else None
    found = _LOOKS[spec.job](table, head, spec.options)
    if found is None:
        return None
    reason, metrics = found
    numbers = totals.from_summary(summary_of(head)).numbers()
    same = {f"{number}_{moment}": value for moment in ("before", "after") for number, value in numbers.items()}
    at = str(head.snapshot_id)
    return TableReport(name, "nothing", reason, None, at, at, {**metrics, "core_seconds": 0.0, **same})


#: why a table needs nothing, with numbers for the report; None if the job has to look
_Found = tuple[str, dict[str, Any]] | None


def _deletes(table: Table, head: Snapshot, options: RewriteDeleteFilesOptions) -> _Found:
    if summary_of(head).get("total-delete-files") == "0":
        return NOTHING, {}
    manifests = _few_enough(table, head)
    if manifests is None or not are_settled(live_files(table, manifests), table.format_version, options):
        return None
    return NOTHING, {}


def _data_files(table: Table, head: Snapshot, options: CompactDataFilesOptions) -> _Found:
    manifests = _few_enough(table, head)
    if manifests is None or (options.add_bloom_filters and names.BLOOM_FILTER_COLUMNS in table.properties):
        return None
    size = totals.from_summary(summary_of(head)).bytes
    target = options.target_file_size_bytes or target_file_bytes(table.properties, size)
    large = options.large_file_ratio * (options.target_file_size_bytes or written_file_bytes(table.properties))
    partitions = by_partition(live_files(table, manifests))
    specs = {spec_id for spec_id, _ in partitions}
    if specs & specs_by_dropped_columns(table) or (options.older_specs and specs - {table.spec().spec_id}):
        return None
    found = [reasons(files, options, target, large) for files in partitions.values()]
    if any(each.wanted for each in found):
        return None
    return none_speaks(options, target, large), {"partitions_examined": len(found), **Reasons.counts(found)}


def _manifests(table: Table, head: Snapshot, options: RewriteManifestsOptions) -> _Found:
    lost = specs_by_dropped_columns(table)
    found = [
        Manifest(m.manifest_path, m.partition_spec_id, m.manifest_length, m.content == 1)
        for m in head.manifests(table.io)
    ]
    kept = [manifest for manifest in found if manifest.spec_id not in lost]
    reason = refusal(kept, options, manifest_target_bytes(table.properties))
    return (reason, manifest_counts(found, "before")) if reason else None


def _order(table: Table, head: Snapshot, options: SortDataFilesOptions) -> _Found:
    manifests, columns = _few_enough(table, head), sorted_columns(table, options)
    if manifests is None or columns is None:
        return None
    if not columns:
        return UNSORTED, {}
    partitions, lost = by_partition(live_files(table, manifests, columns)), specs_by_dropped_columns(table)
    kept = [files for (spec_id, _), files in partitions.items() if spec_id not in lost]
    depths = [(linear_depth(files), keyed_rows(files)) for files in kept]
    if any(depth > options.min_overlap_depth for depth, _ in depths):
        return None
    counts = {"partitions_examined": len(kept), "overlap_depth_before": average_depth(depths)}
    return in_order(options), counts


def _snapshots(table: Table, head: Snapshot, options: ExpireSnapshotsOptions) -> _Found:
    refs = table.metadata.refs
    if any(name.startswith(names.JOB_TAG_PREFIX) or _has_an_age(ref) for name, ref in refs.items()):
        return None
    last = (itertools.islice(branch_snapshots(table, name), options.retain_last) for name in refs)
    kept = {snapshot.snapshot_id for snapshots in last for snapshot in snapshots}
    kept |= {ref.snapshot_id for ref in refs.values()}
    moments, cutoff = {s.snapshot_id: s.timestamp_ms for s in table.metadata.snapshots}, cutoff_ms(options, time.time())
    return None if may_expire(moments, kept, cutoff) else (none_can_go(cutoff), {"snapshots": len(moments)})


def _has_an_age(ref: SnapshotRef) -> bool:
    """Whether a ref, or what it keeps, has rules of its own."""
    return any((ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep))


def _few_enough(table: Table, head: Snapshot) -> list[ManifestFile] | None:
    """A snapshot's manifests; None if they list too many files for a worker."""
    manifests = head.manifests(table.io)
    files = sum((m.added_files_count or 0) + (m.existing_files_count or 0) for m in manifests)
    return manifests if files <= MOST_FILES else None


_LOOKS: dict[str, Callable[[Table, Snapshot, Any], _Found]] = {
    "rewrite_delete_files": _deletes,
    "sort_data_files": _order,
    "compact_data_files": _data_files,
    "rewrite_manifests": _manifests,
    "expire_snapshots": _snapshots,
}
