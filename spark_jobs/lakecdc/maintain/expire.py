"""Expire snapshots, except those with source positions and those that running jobs read."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lakecdc.contract.errors import ConflictError, UnsupportedError, VerificationError
from lakecdc.contract.expiring import ExpireSnapshotsOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.expiry import Expiry, delete_unreachable, expire, missing_files, would_expire
from lakecdc.iceberg.history import History, down_to, read_history
from lakecdc.iceberg.refs import Ref
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.maintain.metadata_versions import require_hint, trim
from lakecdc.maintain.protected import refuse_shared_files
from lakecdc.maintain.reports import dry_run, empty, ends, joined, nothing, seconds_since
from lakecdc.maintain.start_tag import job_tags, stale_tags
from lakecdc.metadata import names
from lakecdc.metadata.consumers import Consumer, read_consumers
from lakecdc.metadata.expiry import cutoff_ms, iso, no_snapshot_expires
from lakecdc.metadata.positions import Carrier
from lakecdc.runtime import failpoints

MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
#: number of live files checked after the expiry
_PROBES = 50


@dataclass(frozen=True)
class ExpiryPlan:
    """Snapshots to expire, dead jobs' tags to drop, and the newest snapshot with source positions."""

    expiry: Expiry
    stale: list[str]
    carrier: Carrier | None
    counts: dict[str, Any]


def expire_snapshots(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Expire unneeded old snapshots of one table, and delete the files that become unreachable.

    :raises SpecError: ``older_than`` is not a valid time.
    :raises UnsupportedError: the table forbids the deletion of files, or its retention removes needed snapshots.
    :raises ConflictError: another writer was faster, or an expired snapshot became needed meanwhile; no file was
        deleted.
    :raises SourceUnavailableError: readers by path would still see the old table; no file was deleted.
    """
    options = spec.options_as(ExpireSnapshotsOptions)
    requested_ms = cutoff_ms(options, time.time())
    head = table.refresh().head()
    if head is None:
        return empty(table)
    refuse_shared_files(table)
    trimmed = {} if options.dry_run else trim(table)
    planned = plan(table, requested_ms, options.retain_last)
    cutoff = planned.expiry.older_than_ms
    if not planned.expiry.expired and not planned.stale:
        why = joined(no_snapshot_expires(cutoff), _unreadable(planned.counts))
        return nothing(table, why, head, **planned.counts, **trimmed)
    if options.dry_run:
        return dry_run(table, head, **planned.counts | _estimate(table, planned.expiry))
    report = _execute(table, planned, requested_ms, options.retain_last)
    return replace(report, metrics=report.metrics | trimmed)


def plan(table: IcebergTable, requested_ms: int, retain_last: int) -> ExpiryPlan:
    """Decide what expires; the cutoff moves back from ``requested_ms`` if snapshots must stay."""
    history = read_history(table)
    keep_last = max(retain_last, int(history.properties.get(MIN_SNAPSHOTS, 1)), 1)
    ancestors = history.ancestors()
    carrier = carrier_of(ancestors)
    stale = stale_tags(history.refs, history.snapshots.get)
    needs, facts = _needs(history, ancestors, carrier, stale)
    needed = {s.id: s for snapshots in needs.values() for s in snapshots}
    cutoff = min([requested_ms, *(s.timestamp_ms for s in needed.values())])
    expired = would_expire(table, cutoff, keep_last)
    by_age = would_expire(table, requested_ms, keep_last) if cutoff != requested_ms else expired
    if lost := expired & needed.keys():
        raise UnsupportedError(
            f"The retention of its branch would remove {len(lost)} snapshots that source positions or running jobs "
            "need.",
            table=table.name,
            hint="Remove max-snapshot-age-ms from the branch (ALTER TABLE … REPLACE BRANCH main), so that the job's "
            "options apply.",
        )
    tagged = history.refs.get(names.POSITIONS_TAG)
    tag_carrier = carrier is not None and (
        carrier.snapshot_id in by_age if tagged is None else tagged.snapshot_id != carrier.snapshot_id
    )
    refs = {names.POSITIONS_TAG: Ref(carrier.snapshot_id, "tag")} if carrier and tag_carrier else {}
    counts = {
        "snapshots": len(history.snapshots),
        "snapshots_expired": len(expired),
        **{f"snapshots_kept_for_{who}": len(by_age & {s.id for s in those}) for who, those in needs.items()},
        **facts,
        "stale_job_tags": len(stale),
        "older_than": iso(cutoff),
    }
    return ExpiryPlan(Expiry(history, cutoff, keep_last, expired, refs), stale, carrier, counts)


def _needs(
    history: History, ancestors: list[Snapshot], carrier: Carrier | None, stale: Collection[str]
) -> tuple[dict[str, list[Snapshot]], dict[str, list[str]]]:
    """Return the snapshots of ``main`` that must stay, newest first, by their user, and the consumers to report."""
    times, now = [(s.id, s.timestamp_ms) for s in ancestors], datetime.now(UTC)
    jobs = [ref.snapshot_id for tag, ref in job_tags(history.refs).items() if tag not in stale]
    consumers = read_consumers(history.properties).values()
    silent = [consumer for consumer in consumers if consumer.is_silent(times, now)]
    read = [_read_by(c, ancestors, history.refs) for c in consumers if c not in silent]
    needs = {"positions": [carrier.snapshot_id] if carrier else [], "jobs": jobs, "consumers": read}
    facts = {
        "silent_consumers": sorted(c.name for c in silent),
        "unreadable_consumers": sorted(c.property_name for c in consumers if not c.is_readable),
    }
    return {who: down_to(ancestors, ids) for who, ids in needs.items()}, facts


def _read_by(consumer: Consumer, ancestors: list[Snapshot], refs: Mapping[str, Ref]) -> int:
    """Return the snapshot that a consumer continues from; for an unreadable consumer its tag's, or else the oldest."""
    if consumer.is_readable or not ancestors:
        return consumer.snapshot_id
    tag = refs.get(consumer.tag)
    tagged = [s.id for s in ancestors if tag is not None and s.id == tag.snapshot_id]
    return tagged[0] if tagged else ancestors[-1].id


def _unreadable(counts: Mapping[str, Any]) -> str | None:
    listed = ", ".join(counts["unreadable_consumers"])
    return f"kept snapshots for unreadable consumers ({listed}): drop them and register them again" if listed else None


def _execute(table: IcebergTable, first: ExpiryPlan, requested_ms: int, retain_last: int) -> TableReport:
    started, plans = time.monotonic(), list[ExpiryPlan]()

    def planned() -> Expiry:
        # a retry after a conflict needs a new plan
        plans.append(plan(table, requested_ms, retain_last) if plans else first)
        failpoints.reach("before_expiry")
        return plans[-1].expiry

    before = expire(table, planned).history
    failpoints.reach("after_expiry")
    after = read_history(table)
    _refuse_needed_expired(table, before, after)
    # the commit's own hint error may have been mistaken for a lost answer
    require_hint(table)
    deleted = delete_unreachable(table, before, after)
    _verify(table, plans[-1].carrier)
    counts = plans[-1].counts
    return TableReport(
        table.name,
        "done",
        _unreadable(counts),
        **ends(next(iter(before.ancestors()), None), table.refresh().head()),
        metrics=counts | deleted | {"seconds": seconds_since(started)},
    )


def _refuse_needed_expired(table: IcebergTable, before: History, after: History) -> None:
    expired = before.snapshots.keys() - after.snapshots.keys()
    known = read_consumers(before.properties)
    new = {key: value for key, value in read_consumers(after.properties).items() if known.get(key) != value}
    jobs = job_tags(after.refs).keys() - before.refs.keys()
    ancestors = before.ancestors()
    needed = {f"consumer {name}": _read_by(consumer, ancestors, after.refs) for name, consumer in new.items()}
    needed |= {f"job {tag}": after.refs[tag].snapshot_id for tag in jobs}
    lost = [who for who, number in needed.items() if expired & {number, *(s.id for s in down_to(ancestors, [number]))}]
    lost += [f"{ref.kind} {name}" for name, ref in after.refs.items() if ref.snapshot_id not in after.snapshots]
    if lost:
        raise ConflictError(
            f"Expired snapshots became needed meanwhile by {', '.join(sorted(lost))}.",
            table=table.name,
            hint="No file was deleted. Restart these readers; remove_orphan_files deletes the files.",
        )


def _verify(table: IcebergTable, carrier: Carrier | None) -> None:
    """Check that the head can be read and that the source positions are still reachable."""
    current = carrier_of(read_history(table).ancestors())
    live = table.metadata("files").select("file_path").distinct().limit(_PROBES).collect()
    missing = missing_files(table, [row.file_path for row in live])
    if missing:
        raise VerificationError(
            f"After the expiry {len(missing)} of {len(live)} checked live files are missing, such as {missing[0]}.",
            table=table.name,
            hint="Restore them from the storage's versions, and find the other tables or jobs that delete there.",
        )
    if carrier is not None and current is None:
        raise VerificationError(
            "After the expiry no ancestor of the head has source positions.",
            table=table.name,
            hint=f"Do not run ingest. Repair the ancestry first: tag {names.POSITIONS_TAG!r} marks the snapshot "
            "with the positions.",
        )
    table.read().limit(1).collect()


def _estimate(table: IcebergTable, planned: Expiry) -> dict[str, int]:
    """Count the files to delete *at most*: removed by expired snapshots and their successor; refs may need some."""
    ancestors = planned.history.ancestors()
    remaining = [s for s in ancestors if s.id not in planned.expired]
    last = remaining[-1:] if len(remaining) < len(ancestors) else []
    counted = [s for s in ancestors if s.id in planned.expired] + last
    references = table.metadata("all_manifests").groupBy("path").agg({"reference_snapshot_id": "collect_set"})
    manifests = sum(1 for row in references.collect() if set(row[1]) <= planned.expired)
    return {
        "data_files_at_most": sum(int(s.summary.get("deleted-data-files", 0)) for s in counted),
        "delete_files_at_most": sum(int(s.summary.get("removed-delete-files", 0)) for s in counted),
        "manifests": manifests,
        "manifest_lists": len(planned.expired),
    }
