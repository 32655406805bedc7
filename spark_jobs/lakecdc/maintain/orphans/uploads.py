"""Abort of old unfinished uploads below a table's data folder: stored parts of files that were never finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakecdc.maintain.orphans.storage import S3Storage
from lakecdc.metadata.locations import in_s3

#: no writer works on one file for so long
_OLD_MS = 7 * 24 * 3600 * 1000


def abort_old(properties: Mapping[str, str], folder: str, now_ms: int, *, dry_run: bool) -> dict[str, Any]:
    """Count the old unfinished uploads below a folder in S3, and abort them unless it is a dry run.

    :param properties: pyiceberg's storage properties.
    :return: counts for the report, with a note if the login may not do it; nothing outside of S3.
    """
    if not in_s3(folder):
        return {}
    from botocore.exceptions import ClientError

    storage, counts = S3Storage(properties), {"uploads_old": 0, "uploads_aborted": 0}
    try:
        old = [upload for upload in storage.uploads(folder) if upload.started_ms < now_ms - _OLD_MS]
        counts["uploads_old"] = len(old)
        for upload in old if not dry_run else ():
            storage.abort(upload)
            counts["uploads_aborted"] += 1
    except ClientError as error:
        return {**counts, "uploads_note": f"Unfinished uploads below {folder} were left: {error}"}
    return counts
