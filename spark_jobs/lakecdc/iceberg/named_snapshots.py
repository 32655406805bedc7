"""Snapshots named by users: by id, tag, branch or time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError, SpecError
from lakecdc.contract.fields import parse_moment
from lakecdc.iceberg.refs import read_refs
from lakecdc.metadata.periodic_tags import newest_by

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot


def named_snapshot(table: IcebergTable, name: str, use: str = "") -> Snapshot:
    """Return the snapshot that a name refers to.

    :param name: an id, a tag, a branch, or an ISO-8601 time: the newest snapshot that ``main`` had by then.
    :param use: continues the error message, such as " for 'x'".
    :raises InputError: the snapshot does not exist or has expired.
    """
    refs = read_refs(table)
    named = refs[name].snapshot_id if name in refs else int(name) if name.isdecimal() else None
    if named is None and (moment := _moment(name)):
        named = newest_by(moments(table.ancestors()), moment)
    snapshot = None if named is None else table.snapshot(named)
    if snapshot is None:
        raise InputError(
            f"The snapshot {name!r}{use} does not exist.",
            table=table.name,
            hint="Use the id of a snapshot that has not expired, a tag, a branch, or an ISO-8601 time.",
        )
    return snapshot


def moments(snapshots: Iterable[Snapshot]) -> list[tuple[int, int]]:
    """Return the ids of snapshots with their times, in milliseconds since 1970."""
    return [(snapshot.id, snapshot.timestamp_ms) for snapshot in snapshots]


def _moment(text: str) -> datetime | None:
    try:
        return parse_moment(text, "moment")
    except SpecError:
        return None
