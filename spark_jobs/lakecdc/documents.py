"""Reading the spec from, and writing the report to, wherever their URIs point."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakecdc.contract.errors import InputError


def read_text(uri: str) -> str:
    """Read a small text document.

    :param uri: a local path, ``file://``, ``s3://`` or any scheme that pyarrow's filesystems know.
    :raises InputError: if it cannot be read.
    """
    try:
        path = _local(uri)
        if path is not None:
            return path.read_text(encoding="utf-8")
        if uri.startswith(("s3://", "s3a://")):
            bucket, key = _bucket_and_key(uri)
            return _s3().get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        from pyarrow import fs

        system, name = fs.FileSystem.from_uri(uri)
        with system.open_input_stream(name) as stream:
            return stream.read().decode()
    except Exception as error:
        raise InputError(f"{uri} cannot be read: {error}.") from error


def write_text(uri: str, text: str) -> None:
    """Write a small text document; a reader never sees half of a local one.

    :param uri: as for :func:`read_text`.
    """
    path = _local(uri)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    elif uri.startswith(("s3://", "s3a://")):
        bucket, key = _bucket_and_key(uri)
        _s3().put_object(Bucket=bucket, Key=key, Body=text.encode())
    else:
        from pyarrow import fs

        system, name = fs.FileSystem.from_uri(uri)
        with system.open_output_stream(name) as stream:
            stream.write(text.encode())


def _local(uri: str) -> Path | None:
    parts = urlsplit(uri)
    if not parts.scheme:
        return Path(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _bucket_and_key(uri: str) -> tuple[str, str]:
    parts = urlsplit(uri)
    return parts.netloc, parts.path.lstrip("/")


def _s3():  # type: ignore[no-untyped-def]
    import boto3

    # AWS_ENDPOINT_URL and the rest of the standard chain are boto3's own business
    return boto3.client("s3")
