"""Read and write documents at URIs: local paths, ``file://``, ``s3://`` or any scheme of pyarrow's filesystems."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from lakecdc.contract.errors import InputError

_AT_ONCE = 16


def read_text(uri: str) -> str:
    """Read a small text document; raise an :class:`InputError` if that fails."""
    content = BytesIO()
    read_into(content, uri)
    try:
        return content.getvalue().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{uri} is not text: {error}.") from error


def write_text(uri: str, text: str) -> None:
    """Write a small text document; see :func:`write_from`."""
    write_from(BytesIO(text.encode()), uri)


def read_into(stream: IO[bytes], uri: str) -> None:
    """Copy a document of any size into a stream; raise an :class:`InputError` if that fails."""
    try:
        with _opened(uri) as document:
            shutil.copyfileobj(document, stream)
    except Exception as error:
        raise InputError(f"Cannot read {uri}: {error}.") from error


def write_from(stream: IO[bytes], uri: str) -> None:
    """Write a document of any size from a stream; readers never see a partial local one."""
    path = _local(uri)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with partial.open("wb") as document:
            shutil.copyfileobj(stream, document)
        partial.replace(path)
    elif uri.startswith(("s3://", "s3a://")):
        bucket, key = _bucket_and_key(uri)
        _s3().put_object(Bucket=bucket, Key=key, Body=stream)
    else:
        from pyarrow import fs

        system, name = fs.FileSystem.from_uri(uri)
        with system.open_output_stream(name) as document:
            shutil.copyfileobj(stream, document)


def read_below(uri: str, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the documents below a folder, which may not exist, each with its URI.

    :param endings: of their names.
    :raises InputError: they cannot be read.
    """
    try:
        yield from _below(uri.rstrip("/"), endings)
    except Exception as error:
        raise InputError(f"Cannot read the documents below {uri}: {error}.") from error


def folder_of(uri: str) -> str:
    """Return the URI or path of a document's folder, without a trailing slash."""
    return uri.rpartition("/")[0] if urlsplit(uri).scheme else str(Path(uri).absolute().parent)


def _opened(uri: str) -> AbstractContextManager[Any]:
    path = _local(uri)
    if path is not None:
        return path.open("rb")
    if uri.startswith(("s3://", "s3a://")):
        bucket, key = _bucket_and_key(uri)
        return closing(_s3().get_object(Bucket=bucket, Key=key)["Body"])
    from pyarrow import fs

    system, name = fs.FileSystem.from_uri(uri)
    return system.open_input_stream(name)


def _below(uri: str, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    path = _local(uri)
    if path is not None:
        for file in path.rglob("*"):
            # another job may be writing or removing documents
            with suppress(FileNotFoundError):
                if file.name.endswith(endings):
                    yield str(file), file.read_bytes()
    elif uri.startswith(("s3://", "s3a://")):
        yield from _below_in_s3(*_bucket_and_key(uri), endings)
    else:
        from pyarrow import fs

        system, name = fs.FileSystem.from_uri(uri)
        for info in system.get_file_info(fs.FileSelector(name, allow_not_found=True, recursive=True)):
            if info.is_file and info.path.endswith(endings):
                with suppress(FileNotFoundError), system.open_input_stream(info.path) as document:
                    yield info.path, document.read()


def _below_in_s3(bucket: str, folder: str, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    client = _s3()

    def read(key: str) -> tuple[str, bytes] | None:
        with suppress(client.exceptions.NoSuchKey):
            return f"s3://{bucket}/{key}", client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{folder}/".lstrip("/")):
            keys = [each["Key"] for each in page.get("Contents", []) if each["Key"].endswith(endings)]
            yield from filter(None, pool.map(read, keys))


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

    # boto3 applies AWS_ENDPOINT_URL and the rest of the standard chain
    return boto3.client("s3")
