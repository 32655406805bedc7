"""Maintain tags of past days and months, and users' tags and branches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.contract.expiring import RefChange, TagSnapshotsOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.refs import Ref, change_refs, moments, named_snapshot, read_refs, ref_age_ms
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.reports import dry_run, empty, ends, nothing
from lakecdc.metadata.periodic_tags import UP_TO_DATE, periodic_tags


def tag_snapshots(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Update the tags of past days and months, and create, move and drop requested refs, in one commit.

    :raises InputError: a change names a missing ref, or creates an existing one.
    :raises ConflictError: another writer was faster.
    """
    options = spec.options_as(TagSnapshotsOptions)
    ancestors = list(table.refresh().ancestors())
    if not ancestors:
        return empty(table)
    refs, now = read_refs(table), datetime.now(UTC)
    refs_after: dict[str, Ref | None] = {
        tag: None if snapshot is None else Ref(snapshot, "tag")
        for tag, snapshot in periodic_tags(options, moments(ancestors), refs, now).items()
    }
    forward = [change.name for change in options.changes if change.action == "fast_forward"]
    refs_after |= {change.name: _resulting_ref(table, change, ancestors, refs) for change in options.changes}
    refs_after = {name: ref for name, ref in refs_after.items() if ref != refs.get(name)}
    metrics = {
        "refs_created": sum(name not in refs for name in refs_after),
        "refs_moved": sum(name in refs and ref is not None for name, ref in refs_after.items()),
        "refs_dropped": sum(ref is None for ref in refs_after.values()),
        "refs": len(refs),
        "changed": sorted(refs_after),
    }
    if not refs_after:
        return nothing(table, UP_TO_DATE, ancestors[0], **metrics)
    if options.dry_run:
        return dry_run(table, ancestors[0], **metrics)
    change_refs(table, refs_after, forward)
    return TableReport(table.name, "done", **ends(ancestors[0], table.head()), metrics=metrics)


def _resulting_ref(
    table: IcebergTable, change: RefChange, ancestors: Sequence[Snapshot], refs: dict[str, Ref]
) -> Ref | None:
    """Return the ref that results from a change; None if it is dropped."""
    present = refs.get(change.name)
    if (present is None) != (change.action == "create"):
        state = "already exists" if present else "does not exist"
        raise InputError(
            f"Cannot {change.action.replace('_', '-')} the tag or branch {change.name!r}: it {state}.", table=table.name
        )
    if change.action == "drop":
        return None
    snapshot = ancestors[0] if change.to is None else named_snapshot(table, change.to, f" for {change.name!r}")
    kind = present.kind if present else change.kind
    if change.action == "fast_forward" and kind != "branch":
        raise InputError(f"Cannot fast-forward {change.name!r}: it is a tag, not a branch.", table=table.name)
    age = present.max_age_ms if present else None
    if change.max_age is not None:
        age = ref_age_ms(snapshot, change.max_age)
    return Ref(snapshot.id, kind, age)
