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
from lakecdc.metadata.locations import in_s3
from lakecdc.object_store.s3 import S3Storage, bucket_and_key
from lakecdc.object_store.s3_client import s3_client

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
    elif in_s3(uri):
        bucket, key = bucket_and_key(uri)
        s3_client({}).put_object(Bucket=bucket, Key=key, Body=stream)
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
    if in_s3(uri):
        bucket, key = bucket_and_key(uri)
        return closing(s3_client({}).get_object(Bucket=bucket, Key=key)["Body"])
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
    elif in_s3(uri):
        yield from _below_in_s3(uri, endings)
    else:
        from pyarrow import fs

        system, name = fs.FileSystem.from_uri(uri)
        for info in system.get_file_info(fs.FileSelector(name, allow_not_found=True, recursive=True)):
            if info.is_file and info.path.endswith(endings):
                with suppress(FileNotFoundError), system.open_input_stream(info.path) as document:
                    yield info.path, document.read()


def _below_in_s3(uri: str, endings: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    storage = S3Storage({})
    locations = [each.location for each in storage.list(f"{uri}/") if each.location.endswith(endings)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for begin in range(0, len(locations), _AT_ONCE):
            part = locations[begin : begin + _AT_ONCE]
            for location, stored in zip(part, pool.map(storage.read, part), strict=True):
                # gone since it was listed
                if stored is not None:
                    yield location, stored.body


def _local(uri: str) -> Path | None:
    parts = urlsplit(uri)
    if not parts.scheme:
        return Path(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
