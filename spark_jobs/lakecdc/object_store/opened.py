"""The storage of a warehouse by its location."""

from __future__ import annotations

from collections.abc import Mapping

from lakecdc.contract.errors import UnsupportedError
from lakecdc.metadata.locations import in_s3, split
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.row_storage import Files, RowStorage
from lakecdc.object_store.rows import open_rows
from lakecdc.object_store.s3 import S3Storage
from lakecdc.object_store.storage import Storage

#: property: URL of a database whose rows decide who commits
COMMIT_SERVICE = "commit_service"


def open_storage(warehouse: str, properties: Mapping[str, str], writable: bool = True) -> Storage:
    """Return the storage of a warehouse.

    :param warehouse: location, such as ``s3://bucket/lake`` or ``file:///data/lake``.
    :param properties: pyiceberg's, of the catalog; ``commit_service`` for a store without conditional writes.
    :param writable: whether the table of its rows is made if there is none.
    """
    service = properties.get(COMMIT_SERVICE)
    files = _files(warehouse, properties, exclusive=not service)
    return RowStorage(files, open_rows(service, properties, writable), warehouse) if service else files


def _files(warehouse: str, properties: Mapping[str, str], exclusive: bool) -> Files:
    if in_s3(warehouse):
        return S3Storage(properties)
    scheme = split(warehouse)[0]
    if scheme in ("", "file"):
        return LocalStorage(warehouse, exclusive=exclusive)
    raise UnsupportedError(
        f"A catalog of type object_store cannot keep its tables in {warehouse!r}: there are no conditional writes for "
        f"{scheme}:// here.",
        hint="Use s3:// or s3a:// with Amazon S3 or a store that has its conditional writes, a local folder (file://), "
        "or another type of catalog.",
    )
