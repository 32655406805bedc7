"""Specs and reports of tries that are long over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import ObjectStoragePath
from fsspec.core import url_to_fs

#: seconds; a job that runs needs its documents, and so do the steps after it
YOUNGEST_DOCUMENT = 24 * 3600.0
_NAME = re.compile(r"(spec|report|application|assessment|plan)\.json\Z|findings-[\w.=~-]+\.jsonl\Z")
_TRY = re.compile(r"try-\d+\Z")
# what the file systems of fsspec call the moment of the last write
_WRITTEN = ("mtime", "LastModified", "last_modified", "updated")


@dataclass
class Removal:
    """What has gone, and what stays.

    :param kept: documents that are younger.
    """

    documents: int = 0
    bytes: int = 0
    kept: int = 0


def remove_documents(base: str, before: datetime, *, dry_run: bool = False) -> Removal:
    """Remove the documents of all tries whose last document was written before a moment.

    Only files that are called as a try's documents are, where they lie, are removed; others stay.

    :param base: folder of all documents, a URI.
    :param before: the moment.
    :param dry_run: only count them.
    """
    (fs, root), removal = _store(base), Removal()
    if not fs.exists(root):
        return removal
    # one DAG after the other, so that not all listings are held at once
    for dag in [info["name"].rstrip("/") for info in fs.ls(root, detail=True) if info["type"] == "directory"]:
        for folder, found in _tries(fs, dag):
            if max(_written(fs, name, info) for name, info in found.items()) >= before:
                removal.kept += len(found)
                continue
            removal.documents += len(found)
            removal.bytes += sum(int(info.get("size") or 0) for info in found.values())
            if not dry_run:
                _remove(fs, folder, found, dag)
    return removal


def _store(base: str) -> tuple[Any, str]:
    """The file system of a folder, with Airflow's connection if the URI names one, and the folder's path in it."""
    path = ObjectStoragePath(base)
    if path.conn_id:
        return path.fs, path.path
    found, name = url_to_fs(base)
    return found, name


def _tries(fs: Any, dag: str) -> Iterator[tuple[str, dict[str, Mapping[str, Any]]]]:
    """Folders of tries, and the documents in each with what the store tells of them."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path, info in fs.find(dag, detail=True).items():
        folder, _, name = path.rpartition("/")
        if _NAME.match(name) and _TRY.match(folder.rpartition("/")[2]):
            found.setdefault(folder, {})[path] = info
    yield from found.items()


def _written(fs: Any, path: str, info: Mapping[str, Any]) -> datetime:
    told = next((info[name] for name in _WRITTEN if info.get(name) is not None), None)
    if told is None:
        told = fs.modified(path)
    if isinstance(told, int | float):
        return datetime.fromtimestamp(told, UTC)
    moment = datetime.fromisoformat(told) if isinstance(told, str) else told
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _remove(fs: Any, folder: str, found: Mapping[str, Any], top: str) -> None:
    """Remove a try's documents, and the folders that are empty then where a store has folders."""
    for path in found:
        # another cleaning may have been faster
        with suppress(FileNotFoundError):
            fs.rm_file(path)
    if "file" not in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)):
        return
    with suppress(OSError):
        while folder.startswith(top):
            fs.rmdir(folder)
            folder = folder.rpartition("/")[0]
