"""Tags of past days and months, and people's own tags and branches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.options import RefChange, TagSnapshotsOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.refs import Ref, change_refs, read_refs, ref_age_ms
from lakecdc.maintain.named_snapshots import moments, named_snapshot
from lakecdc.maintain.rewrite import nothing
from lakecdc.metadata.periodic_tags import AS_WANTED, periodic_tags

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import IcebergTable, Snapshot


def tag_snapshots(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Keep the tags of past days and months, and make, move and drop those that are asked for, in one commit.

    :raises InputError: a change names something that is not there, or makes what is there already.
    :raises ConflictError: another writer was faster.
    """
    options = spec.options
    assert isinstance(options, TagSnapshotsOptions)
    ancestors = list(table.refresh().ancestors())
    if not ancestors:
        return nothing(table, "the table has no snapshot")
    refs, now = read_refs(table), datetime.now(UTC)
    wanted: dict[str, Ref | None] = {
        tag: None if snapshot is None else Ref(snapshot, "tag")
        for tag, snapshot in periodic_tags(options, moments(ancestors), refs, now).items()
    }
    forward = [change.name for change in options.changes if change.action == "fast_forward"]
    wanted |= {change.name: _asked(table, change, ancestors, refs) for change in options.changes}
    wanted = {name: ref for name, ref in wanted.items() if ref != refs.get(name)}
    metrics = {
        "refs_created": sum(name not in refs for name in wanted),
        "refs_moved": sum(name in refs and ref is not None for name, ref in wanted.items()),
        "refs_dropped": sum(ref is None for ref in wanted.values()),
        "refs": len(refs),
        "changed": sorted(wanted),
    }
    if not wanted:
        return nothing(table, AS_WANTED, ancestors[0], **metrics)
    if options.dry_run:
        return nothing(table, "dry run: nothing was changed", ancestors[0], **metrics)
    change_refs(table, wanted, forward)
    head = table.head()
    after = str(head.id) if head else None
    return TableReport(table.name, "done", snapshot_before=str(ancestors[0].id), snapshot_after=after, metrics=metrics)


def _asked(table: IcebergTable, change: RefChange, ancestors: Sequence[Snapshot], refs: dict[str, Ref]) -> Ref | None:
    """What a change makes of its tag or branch."""
    present = refs.get(change.name)
    if (present is None) != (change.action == "create"):
        state = "exists already" if present else "does not exist"
        raise InputError(
            f"The tag or branch {change.name!r} {state}: it cannot be {_DONE[change.action]}.", table=table.name
        )
    if change.action == "drop":
        return None
    snapshot = ancestors[0] if change.to is None else named_snapshot(table, change.to, f" for {change.name!r}")
    kind = present.kind if present else change.kind
    if change.action == "fast_forward" and kind != "branch":
        raise InputError(f"{change.name!r} is a tag: only branches are fast-forwarded.", table=table.name)
    age = present.max_age_ms if present else None
    if change.max_age is not None:
        age = ref_age_ms(snapshot, change.max_age)
    return Ref(snapshot.id, kind, age)


_DONE = {"create": "created", "move": "moved", "fast_forward": "fast-forwarded", "drop": "dropped"}
