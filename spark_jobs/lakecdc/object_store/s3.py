"""Objects in S3 and in stores with its interface."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import Any

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError, UnsupportedError
from lakecdc.metadata.locations import in_s3, split
from lakecdc.object_store.s3_client import s3_client
from lakecdc.object_store.storage import Answer, DeniedError, Listed, Stored

_READS = 3
# by the error code in the answer, because the status may be 200
_ANSWERS = {
    "PreconditionFailed": Answer.REFUSED,
    "412": Answer.REFUSED,
    "ConditionalRequestConflict": Answer.BUSY,
    "OperationAborted": Answer.BUSY,
}
_DENIED = {"AccessDenied", "AllAccessDisabled", "403", "Forbidden"}
#: codes of requests that reached nothing, with what to do
_REJECTED = {
    **dict.fromkeys(
        ("NoSuchBucket", "InvalidBucketName", "PermanentRedirect"),
        "Check the bucket's name and s3.region in the catalog's connection; the bucket must exist.",
    ),
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "AuthorizationHeaderMalformed"),
        "Check the keys, the token and s3.region in the catalog's connection.",
    ),
    "RequestTimeTooSkewed": "Set this machine's clock.",
}
#: of look-ups of storage classes
_THREADS = 16


class S3Storage:
    """A :class:`Storage` by pyiceberg's ``s3.…`` properties.

    A conditional write is one request: a repeated one may be refused because its first arrival was written.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._writer = s3_client(properties, attempts=1)
        self._client = s3_client(properties)
        self._encryption = encryption(properties)

    def __str__(self) -> str:
        return f"S3 at {self._client.meta.endpoint_url}"

    def read(self, location: str) -> Stored | None:
        from botocore.exceptions import BotoCoreError

        for attempt in range(1, _READS + 1):
            answer = self._ask("read", location, self._client.get_object)
            if answer is None:
                return None
            try:
                return Stored(answer["Body"].read(), answer["ETag"])
            # boto3 repeats requests, but not after an interrupted body
            except (BotoCoreError, OSError) as error:
                if attempt == _READS:
                    raise _unavailable("read", location, error) from error
        raise AssertionError("the last attempt returns or raises")

    def exists(self, location: str) -> bool:
        return self._ask("look for", location, self._client.head_object) is not None

    def create(self, location: str, body: bytes) -> Answer:
        return self._write(location, body, {"IfNoneMatch": "*"})

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        return self._write(location, body, {"IfMatch": tag})

    def put(self, location: str, body: bytes) -> None:
        bucket, key = bucket_and_key(location)
        ask("write", location, lambda: self._client.put_object(Bucket=bucket, Key=key, Body=body, **self._encryption))

    def delete(self, location: str) -> None:
        self._ask("delete", location, self._client.delete_object)

    def list(self, prefix: str) -> Iterator[Listed]:
        bucket, start = bucket_and_key(prefix)
        root = prefix.removesuffix(start)
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=start))
        while (page := ask("list", prefix, lambda: next(pages, None))) is not None:
            for each in page.get("Contents", []):
                # keys with a trailing slash are folder markers of consoles
                if not each["Key"].endswith("/"):
                    yield Listed(root + each["Key"], each["Size"], each["LastModified"].astimezone(UTC))

    def _ask(self, what: str, location: str, request: Callable[..., Any]) -> Any:
        bucket, key = bucket_and_key(location)
        try:
            return ask(what, location, lambda: request(Bucket=bucket, Key=key))
        except _MissingError:
            return None

    def _write(self, location: str, body: bytes, condition: Mapping[str, str]) -> Answer:
        from botocore.exceptions import ClientError

        bucket, key = bucket_and_key(location)
        try:
            answer = self._writer.put_object(Bucket=bucket, Key=key, Body=body, **condition, **self._encryption)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            # the object is not there, so it does not have the tag either
            if code == "NoSuchKey" and "IfMatch" in condition:
                return Answer.REFUSED
            if rejected := _rejected("write", location, error):
                raise rejected from error
            return _ANSWERS.get(code, Answer.UNCLEAR)
        # botocore has one class for local errors and another one for the network, and parsers raise others
        except Exception as error:
            if rejected := _not_sent("write", location, error):
                raise rejected from error
            return Answer.UNCLEAR
        # a proxy may answer 200 to anything
        return Answer.WRITTEN if answer.get("ETag") else Answer.UNCLEAR


class _MissingError(SourceUnavailableError):
    """The object does not exist."""


def encryption(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments of requests that create an object, by pyiceberg's storage properties."""
    names = {"s3.server-side-encryption": "ServerSideEncryption", "s3.sse-kms-key-id": "SSEKMSKeyId"}
    return {to: properties[key] for key, to in names.items() if properties.get(key)}


def ask(what: str, location: str, request: Callable[[], Any]) -> Any:
    """Return the answer to a request that may be repeated.

    :param what: its action, for errors.
    """
    from botocore.exceptions import ClientError

    try:
        return request()
    except ClientError as error:
        # an answer to HEAD has no error code
        if error.response["Error"]["Code"] in ("NoSuchKey", "404", "NotFound"):
            raise _MissingError(_sentence(what, location, error)) from error
        raise (_rejected(what, location, error) or _unavailable(what, location, error)) from error
    except Exception as error:
        raise (_not_sent(what, location, error) or _unavailable(what, location, error)) from error


def _rejected(what: str, location: str, error: Any) -> LakecdcError | None:
    """Return the error for an answer to a request that did nothing and never will, or None."""
    code, said = error.response["Error"]["Code"], _sentence(what, location, error)
    if code == "NotImplemented":
        return UnsupportedError(
            said, hint="Use a store with conditional writes (If-None-Match, If-Match), or another catalog."
        )
    if code in _DENIED:
        return DeniedError(
            said,
            hint="Allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket "
            "below the warehouse.",
        )
    return InputError(said, hint=_REJECTED[code]) if code in _REJECTED else None


def _not_sent(what: str, location: str, error: Exception) -> LakecdcError | None:
    """Return the error for a request that never left this process, or None."""
    from botocore import exceptions as of

    credentials = (of.NoCredentialsError, of.PartialCredentialsError, of.CredentialRetrievalError, of.SSOError)
    others = (of.TokenRetrievalError, of.ParamValidationError, of.NoRegionError)
    if not isinstance(error, (*credentials, *others)):
        return None
    return InputError(
        _sentence(what, location, error),
        hint="Check the s3 settings of the catalog's connection, or the credentials that boto3 finds here.",
    )


def _unavailable(what: str, location: str, error: Exception) -> SourceUnavailableError:
    return SourceUnavailableError(
        _sentence(what, location, error), hint="Check that the store answers at s3.endpoint, then retry."
    )


def _sentence(what: str, location: str, error: Exception) -> str:
    return f"Cannot {what} {location}: {str(error).rstrip('.')}."


def bucket_and_key(location: str) -> tuple[str, str]:
    """Split a location into bucket and key, which is never encoded."""
    _, bucket, path = split(location)
    if not in_s3(location) or not bucket:
        raise InputError(f"{location!r} is not a location in S3.", hint="Use a location such as s3://bucket/folder.")
    return bucket, path.removeprefix("/")


def storage_classes(properties: Mapping[str, str], locations: Collection[str]) -> dict[str, str]:
    """Look up the storage class of files with one HEAD request each, omitting files that are gone or not in S3.

    The tier of an archived object of ``INTELLIGENT_TIERING`` is its class.

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

    bucket, key = bucket_and_key(location)
    try:
        head = client.head_object(Bucket=bucket, Key=key)
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise SourceUnavailableError(
            f"Cannot look up the storage class of {location}: {str(error).rstrip('.')}.",
            hint="Allow HEAD requests on the table's files, or remove cold_storage_classes.",
        ) from error
    # S3 does not send the class of standard objects
    return str(head.get("ArchiveStatus") or head.get("StorageClass") or "STANDARD")
