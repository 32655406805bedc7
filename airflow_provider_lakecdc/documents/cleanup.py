"""Removal of old specs and reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import ObjectStoragePath
from fsspec.core import url_to_fs

#: seconds; running jobs and the steps after them need their documents
YOUNGEST_DOCUMENT = 24 * 3600.0
_NAME = re.compile(r"(spec|report|application|assessment|plan)\.json\Z|findings-[\w.=~-]+\.jsonl\Z")
_TRY = re.compile(r"try-\d+\Z")
# names of the last-modified time in fsspec file systems
_WRITTEN = ("mtime", "LastModified", "last_modified", "updated")


@dataclass
class Removal:
    """Counts of removed documents and of retained newer ones."""

    documents: int = 0
    bytes: int = 0
    retained: int = 0


def remove_documents(base: str, before: datetime, *, dry_run: bool = False) -> Removal:
    """Remove the documents of all tries whose newest document is older than a time.

    Only files with the name and place of a try's document are removed.

    :param base: folder of all documents, a URI.
    :param dry_run: only count.
    """
    (fs, root), removal = _store(base), Removal()
    if not fs.exists(root):
        return removal
    # one DAG at a time, to bound the size of listings
    for dag in [info["name"].rstrip("/") for info in fs.ls(root, detail=True) if info["type"] == "directory"]:
        for folder, documents in _tries(fs, dag):
            if max(_modified_at(fs, name, info) for name, info in documents.items()) >= before:
                removal.retained += len(documents)
                continue
            removal.documents += len(documents)
            removal.bytes += sum(int(info.get("size") or 0) for info in documents.values())
            if not dry_run:
                _remove(fs, folder, documents, dag)
    return removal


def _store(base: str) -> tuple[Any, str]:
    """Return a folder's file system, with the Airflow connection in the URI if any, and its path there."""
    path = ObjectStoragePath(base)
    if path.conn_id:
        return path.fs, path.path
    fs, name = url_to_fs(base)
    return fs, name


def _tries(fs: Any, dag: str) -> Iterator[tuple[str, dict[str, Mapping[str, Any]]]]:
    by_folder: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path, info in fs.find(dag, detail=True).items():
        folder, _, name = path.rpartition("/")
        if _NAME.match(name) and _TRY.match(folder.rpartition("/")[2]):
            by_folder.setdefault(folder, {})[path] = info
    yield from by_folder.items()


def _modified_at(fs: Any, path: str, info: Mapping[str, Any]) -> datetime:
    modified = next((info[name] for name in _WRITTEN if info.get(name) is not None), None)
    if modified is None:
        modified = fs.modified(path)
    if isinstance(modified, int | float):
        return datetime.fromtimestamp(modified, UTC)
    moment = datetime.fromisoformat(modified) if isinstance(modified, str) else modified
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _remove(fs: Any, folder: str, documents: Mapping[str, Any], top: str) -> None:
    """Remove a try's documents, and then its empty folders if the store has folders."""
    for path in documents:
        # a concurrent cleanup may have removed it
        with suppress(FileNotFoundError):
            fs.rm_file(path)
    if "file" not in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        return
    with suppress(OSError):
        while folder.startswith(top):
            fs.rmdir(folder)
            folder = folder.rpartition("/")[0]
