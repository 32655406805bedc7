"""Snapshot expiry that never forgets where the source stands nor takes a running job's ground away."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakecdc import failpoints
from lakecdc.contract.errors import UnsupportedError, VerificationError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.options import ExpireSnapshotsOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.expiry import expire, missing_files, refs, set_tag, would_expire
from lakecdc.maintain.rewrite import nothing
from lakecdc.maintain.shared_files import refuse_shared_files
from lakecdc.maintain.start_tag import job_tags, remove_stale_tags, stale_tags
from lakecdc.metadata import names
from lakecdc.metadata.consumers import read_consumers
from lakecdc.metadata.positions import Carrier, nearest_carrier

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot

_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
#: live files looked for after the expiry
_PROBES = 50


@dataclass(frozen=True)
class ExpiryPlan:
    """What is to expire.

    :param cutoff_ms: older snapshots expire, except the last ones of each branch; milliseconds since 1970.
    :param retain_last: snapshots kept on every branch.
    :param expired: ids of the snapshots that go.
    :param stale: tags of dead jobs that go.
    :param carrier: the newest snapshot with source positions.
    :param tag_carrier: whether it has to be tagged first.
    :param counts: for the report.
    """

    cutoff_ms: int
    retain_last: int
    expired: set[int]
    stale: list[str]
    carrier: Carrier | None
    tag_carrier: bool
    counts: dict[str, Any]


def expire_snapshots(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Expire what is old enough and nobody needs in one table, and delete the files that become unreachable.

    :raises SpecError: ``older_than`` is no moment.
    :raises UnsupportedError: the table forbids the deletion of files, or keeps less than must be kept.
    :raises ConflictError: another writer was faster.
    """
    options = spec.options
    assert isinstance(options, ExpireSnapshotsOptions)
    asked = _cutoff_ms(options, time.time())
    head = table.refresh().head()
    if head is None:
        return nothing(table, "the table has no snapshot")
    refuse_shared_files(table)
    planned = plan(table, asked, options.retain_last)
    if not planned.expired and not planned.stale:
        return nothing(table, f"no snapshot before {_iso(planned.cutoff_ms)} can go", head, **planned.counts)
    if options.dry_run:
        return nothing(table, "dry run: nothing was changed", head, **planned.counts | _estimate(table, planned))
    return _carry_out(table, planned, head)


def plan(table: IcebergTable, asked_ms: int, retain_last: int) -> ExpiryPlan:
    """Decide what expires; nothing is changed.

    :param asked_ms: moment before which snapshots are to expire; moved back as far as something must be kept.
    """
    keep_last = max(retain_last, int(table.properties.get(_MIN_SNAPSHOTS, 1)), 1)
    ancestors, stale = list(table.ancestors()), stale_tags(table)
    carrier = nearest_carrier((s.id, s.summary) for s in ancestors)
    jobs = [int(ref.snapshotId()) for tag, ref in job_tags(table).items() if tag not in stale]
    for_positions = _down_to(ancestors, [carrier.snapshot_id] if carrier else [])
    consumers, silent = _consumers(table, ancestors)
    for_consumers = _down_to(ancestors, consumers)
    needed = {s.id: s for s in (*for_positions, *_down_to(ancestors, jobs), *for_consumers)}
    cutoff = min([asked_ms, *(s.timestamp_ms for s in needed.values())])
    by_age, expired = would_expire(table, asked_ms, keep_last), would_expire(table, cutoff, keep_last)
    _refuse_if_needed_would_go(table, expired & set(needed))
    tagged = refs(table).get(names.POSITIONS_TAG)
    tag_carrier = carrier is not None and (
        carrier.snapshot_id in by_age if tagged is None else tagged != carrier.snapshot_id
    )
    counts = {
        "snapshots": sum(1 for _ in table.java.snapshots()),
        "snapshots_expired": len(expired),
        "snapshots_kept_for_positions": len(by_age & {s.id for s in for_positions}),
        "snapshots_kept_for_jobs": len(by_age & {s.id for s in _down_to(ancestors, jobs)}),
        "snapshots_kept_for_consumers": len(by_age & {s.id for s in for_consumers}),
        "silent_consumers": silent,
        "stale_job_tags": len(stale),
        "older_than": _iso(cutoff),
    }
    return ExpiryPlan(cutoff, keep_last, expired, stale, carrier, tag_carrier, counts)


def _consumers(table: IcebergTable, ancestors: Sequence[Snapshot]) -> tuple[list[int], list[str]]:
    """The snapshots that registered consumers have read last, and the names of those that count no more."""
    times, now = [(s.id, s.timestamp_ms) for s in ancestors], datetime.now(UTC)
    found = read_consumers(table.properties).values()
    silent = [consumer for consumer in found if consumer.is_silent(times, now)]
    return [c.snapshot_id for c in found if c not in silent], sorted(c.name for c in silent)


def _carry_out(table: IcebergTable, planned: ExpiryPlan, head: Snapshot) -> TableReport:
    started = time.monotonic()
    if planned.tag_carrier and planned.carrier:
        set_tag(table, names.POSITIONS_TAG, planned.carrier.snapshot_id)
    remove_stale_tags(table)
    # a dead job's tag may have been all that kept a snapshot
    planned = dataclasses.replace(planned, expired=would_expire(table, planned.cutoff_ms, planned.retain_last))
    metrics = planned.counts | {"snapshots_expired": len(planned.expired)}
    failpoints.reach("before_expiry")
    if planned.expired:
        metrics |= expire(table, planned.cutoff_ms, planned.retain_last).metrics()
        _verify(table, planned)
    after = table.refresh().head()
    return TableReport(
        table.name,
        "done",
        snapshot_before=str(head.id),
        snapshot_after=str(after.id) if after else None,
        metrics=metrics | {"seconds": round(time.monotonic() - started, 3)},
    )


def _verify(table: IcebergTable, planned: ExpiryPlan) -> None:
    """Check that the head can be read and that the positions are found.

    :raises VerificationError: they are not.
    """
    found = nearest_carrier((s.id, s.summary) for s in table.refresh().ancestors())
    live = table.metadata("files").select("file_path").distinct().limit(_PROBES).collect()
    missing = missing_files(table, [row.file_path for row in live])
    if missing:
        raise VerificationError(
            f"After the expiry {len(missing)} of {len(live)} live files looked for are gone, such as {missing[0]}.",
            table=table.name,
            hint="Restore them from the storage's versions, and look for other tables or jobs that delete there.",
        )
    if planned.carrier is not None and found is None:
        raise VerificationError(
            "After the expiry the source positions are no longer found in the ancestry of the head.",
            table=table.name,
            hint=f"Tag {names.POSITIONS_TAG!r} names the snapshot that carries them; do not ingest until it is mended.",
        )
    table.read().limit(1).collect()


def _down_to(ancestors: list[Snapshot], ids: Iterable[int]) -> list[Snapshot]:
    """The head and its ancestors down to the oldest of the given ones; none of them if none is an ancestor."""
    wanted = set(ids)
    last = max((number for number, s in enumerate(ancestors) if s.id in wanted), default=-1)
    return ancestors[: last + 1]


def _refuse_if_needed_would_go(table: IcebergTable, lost: set[int]) -> None:
    if lost:
        raise UnsupportedError(
            f"Its branch has a retention of its own that would remove {len(lost)} snapshots which source positions or "
            "a running job need.",
            table=table.name,
            hint="Remove max-snapshot-age-ms from the branch (ALTER TABLE … REPLACE BRANCH main); the job's own "
            "options decide then.",
        )


def _estimate(table: IcebergTable, planned: ExpiryPlan) -> dict[str, int]:
    """Files that would be deleted.

    What a snapshot removed becomes unreachable once every older one is gone, so the expired ones and the oldest that
    stays are counted; files that a tag or branch still needs are counted too, hence *at most*.
    """
    ancestors = list(table.ancestors())
    kept = [s for s in ancestors if s.id not in planned.expired]
    last = kept[-1:] if len(kept) < len(ancestors) else []
    counted = [s for s in ancestors if s.id in planned.expired] + last
    references = table.metadata("all_manifests").groupBy("path").agg({"reference_snapshot_id": "collect_set"})
    manifests = sum(1 for row in references.collect() if set(row[1]) <= planned.expired)
    return {
        "data_files_at_most": sum(int(s.summary.get("deleted-data-files", 0)) for s in counted),
        "delete_files_at_most": sum(int(s.summary.get("removed-delete-files", 0)) for s in counted),
        "manifests": manifests,
        "manifest_lists": len(planned.expired),
    }


def _cutoff_ms(options: ExpireSnapshotsOptions, now: float) -> int:
    if options.older_than is None:
        return int((now - options.max_age) * 1000)
    return int(parse_moment(options.older_than, "options.older_than").timestamp() * 1000)


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
