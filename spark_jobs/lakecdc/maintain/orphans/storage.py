"""Access the storage of a table, whose folders may be in several stores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.stored_files import FileIoStorage, StoredFile
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.locations import in_s3, split
from lakecdc.object_store.s3_client import s3_client

_THREADS = 16
#: number of ranges of a listing: more than threads, because folders differ in size
_RANGES = 64
#: maximum number of sub-folder pages to read for cuts
_MOST_PAGES = 32
_KEYS_PER_DELETE = 1000

#: no writer works on one file longer than this
_OLD_MS = 7 * 24 * 3600 * 1000


class TableStorage:
    """File access: in S3 with boto3, which handles many files at once, elsewhere with the table's FileIO."""

    def __init__(self, table: IcebergTable) -> None:
        self._table, self._file_io = table, FileIoStorage(table)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """List every file below a folder, in any order; raise VanishedError if a folder is deleted meanwhile."""
        return (self._s3 if in_s3(folder) else self._file_io).walk(folder)

    def find(self, locations: Collection[str]) -> dict[str, StoredFile]:
        """Return the current state of existing files, by location."""
        s3, others = _divided(locations)
        return (self._s3.find(s3) if s3 else {}) | self._file_io.find(others)

    def delete(self, locations: Collection[str]) -> int:
        """Delete files, ignoring missing ones, and return the number that could not be deleted."""
        s3, others = _divided(locations)
        return (self._s3.delete(s3) if s3 else 0) + (self._file_io.delete(others) if others else 0)

    @cached_property
    def _s3(self) -> S3Storage:
        return S3Storage(storage_properties(self._table))


def _divided(locations: Collection[str]) -> tuple[list[str], list[str]]:
    return [each for each in locations if in_s3(each)], [each for each in locations if not in_s3(each)]


class S3Storage:
    """Files in S3, by pyiceberg's storage properties; without an access key boto3 finds credentials itself."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._client = s3_client(properties, connections=_THREADS)

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every object below a folder, in any order; at most one page per range is buffered."""
        pool = ThreadPoolExecutor(_THREADS)
        try:
            cuts = self._cuts(folder)
            ranges = zip(["", *cuts], [*cuts, None], strict=True)
            pages = {pool.submit(self._page, folder, {"StartAfter": after}, before) for after, before in ranges}
            while pages:
                done, pages = wait(pages, return_when=FIRST_COMPLETED)
                results = [page.result() for page in done]
                pages |= {pool.submit(self._page, folder, more, before) for _, more, before in results if more}
                for files, _, _ in results:
                    yield from files
        except Exception as error:
            raise SourceUnavailableError(
                f"Cannot list {folder}: {error}.",
                hint="Check the catalog's s3 settings, or the credentials that boto3 finds where the driver runs.",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)

    def find(self, locations: Collection[str]) -> dict[str, StoredFile]:
        with ThreadPoolExecutor(_THREADS) as pool:
            return {file.location: file for file in pool.map(self._head, locations) if file}

    def delete(self, locations: Collection[str]) -> int:
        failed = 0
        keys = [_parts(location)[1:] for location in locations]
        for bucket in {bucket for bucket, _ in keys}:
            of_bucket = iter([{"Key": key} for of, key in keys if of == bucket])
            while chunk := list(islice(of_bucket, _KEYS_PER_DELETE)):
                answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": chunk, "Quiet": True})
                failed += len(answer.get("Errors", []))
        return failed

    def _head(self, location: str) -> StoredFile | None:
        from botocore.exceptions import ClientError

        _, bucket, key = _parts(location)
        try:
            answer = self._client.head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise
        return StoredFile(location, int(answer["ContentLength"]), _milliseconds(answer["LastModified"]))

    def _cuts(self, folder: str) -> list[str]:
        """Return keys that cut a folder into ranges to list in parallel; the keys need not exist."""
        _, bucket, prefix = _parts(f"{folder.rstrip('/')}/")
        level, cuts, read = [prefix], list[str](), 0
        while level and read < _MOST_PAGES and len(cuts) < _RANGES:
            prefixes: list[str] = []
            for parent in level[: _MOST_PAGES - read]:
                answer = self._client.list_objects_v2(Bucket=bucket, Prefix=parent, Delimiter="/")
                prefixes += [each["Prefix"] for each in answer.get("CommonPrefixes", [])]
                read += 1
            cuts, level = cuts + prefixes, prefixes
        cuts.sort()
        step = max(1, len(cuts) // _RANGES)
        return cuts[::step]

    def _page(
        self, folder: str, start: Mapping[str, str], before: str | None
    ) -> tuple[list[StoredFile], Mapping[str, str], str | None]:
        """Read a page of the keys below a prefix; return its files, the key to continue from, and ``before``."""
        scheme, bucket, prefix = _parts(f"{folder.rstrip('/')}/")
        answer = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix, **start)
        page = answer.get("Contents", [])
        files = [
            StoredFile(f"{scheme}://{bucket}/{each['Key']}", int(each["Size"]), _milliseconds(each["LastModified"]))
            for each in page
            # keys with a trailing slash are folder markers that consoles create
            if not each["Key"].endswith("/") and (before is None or each["Key"] < before)
        ]
        is_over = not answer.get("IsTruncated") or (before is not None and bool(page) and page[-1]["Key"] >= before)
        return files, {} if is_over else {**start, "ContinuationToken": answer["NextContinuationToken"]}, before


def _milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000)


def _parts(location: str) -> tuple[str, str, str]:
    """Split a location into scheme, bucket and key; keys are not URL-encoded."""
    scheme, bucket, path = split(location)
    return scheme, bucket, path.removeprefix("/")


def abort_old(properties: Mapping[str, str], folder: str, now_ms: int, *, dry_run: bool) -> dict[str, Any]:
    """Count the old unfinished uploads below a folder in S3, and abort them unless it is a dry run.

    :return: counts for the report, with a note if the login lacks the privilege; empty outside of S3.
    """
    if not in_s3(folder):
        return {}
    from botocore.exceptions import ClientError

    client, counts = s3_client(properties), {"uploads_old": 0, "uploads_aborted": 0}
    _, bucket, prefix = _parts(f"{folder.rstrip('/')}/")
    try:
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
        uploads = [upload for page in pages for upload in page.get("Uploads", [])]
        old = [upload for upload in uploads if _milliseconds(upload["Initiated"]) < now_ms - _OLD_MS]
        counts["uploads_old"] = len(old)
        for upload in old if not dry_run else ():
            # it may have been completed or aborted meanwhile
            with suppress(client.exceptions.NoSuchUpload):
                client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
            counts["uploads_aborted"] += 1
    except ClientError as error:
        return {**counts, "uploads_note": f"Unfinished uploads below {folder} were left: {error}"}
    return counts
