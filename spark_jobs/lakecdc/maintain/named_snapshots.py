"""Snapshots as people name them: by id, tag, branch or moment."""

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
    """The snapshot that somebody means.

    :param name: an id, a tag, a branch, or an ISO-8601 moment: the newest snapshot that ``main`` had by then.
    :param use: what it is wanted for, as the message goes on.
    :raises InputError: there is none, or it has expired.
    """
    refs = read_refs(table)
    named = refs[name].snapshot_id if name in refs else int(name) if name.isdecimal() else None
    if named is None and (moment := _moment(name)):
        named = newest_by(moments(table.ancestors()), moment)
    found = None if named is None else table.snapshot(named)
    if found is None:
        raise InputError(
            f"There is no snapshot {name!r}{use}.",
            table=table.name,
            hint="Give the id of a snapshot that has not expired, a tag, a branch, or an ISO-8601 moment.",
        )
    return found


def moments(snapshots: Iterable[Snapshot]) -> list[tuple[int, int]]:
    """Snapshots with their times, in milliseconds since 1970."""
    return [(snapshot.id, snapshot.timestamp_ms) for snapshot in snapshots]


def _moment(text: str) -> datetime | None:
    try:
        return parse_moment(text, "moment")
    except SpecError:
        return None
