"""The short-lived tag that keeps a long job's start snapshot from expiring under it."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.jvm import java_message
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.retry import retried
from lakecdc.metadata.names import JOB_TAG_PREFIX

if TYPE_CHECKING:
    from lakecdc.iceberg.refs import Ref
    from lakecdc.iceberg.table import IcebergTable, Snapshot

log = logging.getLogger(__name__)

#: seconds after which a tag that its job could not remove (killed, catalog gone) protects nothing any more
MAX_AGE_SECONDS = 24 * 3600.0


@contextmanager
def start_tag(
    table: IcebergTable, snapshot: Snapshot, job: str, *, max_age_seconds: float = MAX_AGE_SECONDS
) -> Iterator[str]:
    """Tag the snapshot a job starts from, for as long as the job works on it.

    Without it a concurrent expiry deletes files the job still reads, and the job's commit cannot determine the
    history since its start. Stale tags of jobs that died are removed on the way in.

    :param snapshot: what the job reads; the tag keeps its files, not the snapshots between it and the head.
    :param job: name of the job, part of the tag's name.
    :param max_age_seconds: life of the tag from now on, if the job does not come to remove it.
    :return: the tag's name.
    :raises ConflictError: the snapshot has expired already.
    """
    tag = f"{JOB_TAG_PREFIX}{job}-{uuid.uuid4().hex[:12]}"
    remove_stale_tags(table)
    _create(table, tag, snapshot, max_age_seconds)
    try:
        yield tag
    finally:
        _remove(table, tag)


def remove_stale_tags(table: IcebergTable) -> list[str]:
    """Remove the tags of jobs that died without removing them.

    :return: the names of the removed tags.
    """
    refs = read_refs(table.refresh())
    stale = stale_tags(refs, table.snapshot)
    for tag in stale:
        _remove(table, tag)
    return stale


def stale_tags(refs: Mapping[str, Ref], snapshot_of: Callable[[int], Snapshot | None]) -> list[str]:
    """The names of the tags of jobs that died without removing them.

    :param snapshot_of: the snapshot of an id, if it is there.
    """
    return [tag for tag, ref in job_tags(refs).items() if _is_stale(ref, snapshot_of(ref.snapshot_id))]


def job_tags(refs: Mapping[str, Ref]) -> dict[str, Ref]:
    """The tags of running and dead jobs by name."""
    return {name: ref for name, ref in refs.items() if name.startswith(JOB_TAG_PREFIX)}


def _create(table: IcebergTable, tag: str, snapshot: Snapshot, max_age_seconds: float) -> None:
    # Iceberg counts a ref's age from the time of its snapshot, not from the time the ref was made
    age_ms = max(_now_ms() - snapshot.timestamp_ms + int(max_age_seconds * 1000), 1)
    try:
        retried(
            table, lambda: table.java.manageSnapshots().createTag(tag, snapshot.id).setMaxRefAgeMs(tag, age_ms).commit()
        )
    except Exception as error:
        if table.refresh().snapshot(snapshot.id) is not None:
            raise
        raise ConflictError(
            f"Snapshot {snapshot.id}, which the job was to start from, has expired: {java_message(error)}",
            table=table.name,
            hint="Nothing was changed; run again.",
        ) from error


def _remove(table: IcebergTable, tag: str) -> None:
    """Never raises: the tag's age ends it anyway, and the job's own error matters more."""
    try:
        if table.refresh().java.refs().containsKey(tag):
            retried(table, lambda: table.java.manageSnapshots().removeTag(tag).commit())
    except Exception as error:
        log.warning("%s: tag %s was not removed: %s", table.name, tag, java_message(error))


def _is_stale(ref: Ref, snapshot: Snapshot | None) -> bool:
    return snapshot is not None and ref.max_age_ms is not None and _now_ms() - snapshot.timestamp_ms > ref.max_age_ms


def _now_ms() -> int:
    return int(time.time() * 1000)
