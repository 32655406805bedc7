"""The storage of a warehouse by its location."""

from __future__ import annotations

from collections.abc import Mapping

from lakecdc.contract.errors import UnsupportedError
from lakecdc.metadata.locations import in_s3, split
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.s3 import S3Storage
from lakecdc.object_store.storage import Storage


def open_storage(warehouse: str, properties: Mapping[str, str]) -> Storage:
    """Return the storage of a warehouse.

    :param warehouse: location, such as ``s3://bucket/lake`` or ``file:///data/lake``.
    :param properties: pyiceberg's, of the catalog.
    """
    if in_s3(warehouse):
        return S3Storage(properties)
    scheme = split(warehouse)[0]
    if scheme in ("", "file"):
        return LocalStorage(warehouse)
    raise UnsupportedError(
        f"A catalog of type object_store cannot keep its tables in {warehouse!r}: there are no conditional writes for "
        f"{scheme}:// here.",
        hint="Use s3:// or s3a:// with Amazon S3 or a store that has its conditional writes, a local folder (file://), "
        "or another type of catalog.",
    )
