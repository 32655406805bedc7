"""Storage classes of files in S3."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.metadata.locations import in_s3, split
from lakecdc.object_store.s3_client import s3_client

_THREADS = 16


def storage_classes(properties: Mapping[str, str], locations: Collection[str]) -> dict[str, str]:
    """Look up the storage class of files with one HEAD request each, without files that are gone or not in S3.

    The tier of an archived object of ``INTELLIGENT_TIERING`` stands for its class.

    :param properties: storage properties in pyiceberg's names.
    :raises SourceUnavailableError: S3 refused a request.
    """
    in_bucket = [location for location in locations if in_s3(location)]
    if not in_bucket:
        return {}
    client = s3_client(properties, connections=_THREADS)
    with ThreadPoolExecutor(_THREADS) as pool:
        classes = pool.map(lambda location: _storage_class(client, location), in_bucket)
        return {location: name for location, name in zip(in_bucket, classes, strict=True) if name}


def _storage_class(client: Any, location: str) -> str | None:
    from botocore.exceptions import BotoCoreError, ClientError

    _, bucket, path = split(location)
    try:
        head = client.head_object(Bucket=bucket, Key=path.removeprefix("/"))
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise SourceUnavailableError(
            f"Cannot look up the storage class of {location}: {str(error).rstrip('.')}.",
            hint="Allow HEAD requests on the table's files, or remove cold_storage_classes.",
        ) from error
    # S3 does not send the class of standard objects
    return str(head.get("ArchiveStatus") or head.get("StorageClass") or "STANDARD")
