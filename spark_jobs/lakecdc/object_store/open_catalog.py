"""Open a catalog in an object store by the properties of its connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.runtime import OBJECT_STORE, catalog_type
from lakecdc.metadata.locations import in_s3, split
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.proof import prove
from lakecdc.object_store.row_storage import Files, RowStorage
from lakecdc.object_store.rows import open_rows
from lakecdc.object_store.s3 import S3Storage
from lakecdc.object_store.storage import Applier, DeniedError, Storage

WAREHOUSE, READABLE_PATHS = "warehouse", "readable_paths"
_SWITCH = {"true": True, "false": False}
#: property: URL of a database whose rows order the commits
COMMIT_SERVICE = "commit_service"
#: catalogs that this process serves to its Spark session, by their names in Spark, for requests that clients cannot
#: send
_served: dict[str, ObjectCatalog] = {}


def open_catalog(properties: Mapping[str, Any], applier: Applier, *, writable: bool = True) -> ObjectCatalog:
    """Open the catalog in a warehouse, after a proof that its storage keeps the conditions of writes.

    A login that may not write opens it for reads, which need no proof.

    :param properties: ``warehouse``, ``readable_paths`` and the storage's, with secrets resolved.
    :raises SpecError: a property is missing or not valid.
    """
    # refuses properties without a warehouse
    catalog_type({**properties, "type": OBJECT_STORE})
    warehouse, readable_paths = properties[WAREHOUSE], str(properties.get(READABLE_PATHS, "false")).lower()
    if readable_paths not in _SWITCH:
        raise SpecError(f"Expected true or false as {READABLE_PATHS}, got {readable_paths!r}.")
    storage = open_storage(warehouse, properties, writable)
    catalog = ObjectCatalog(storage, warehouse, applier, readable_paths=_SWITCH[readable_paths])
    if not writable:
        return catalog.for_reads()
    try:
        prove(storage, warehouse)
    except DeniedError as denied:
        return catalog.for_reads(denied)
    return catalog


def open_storage(warehouse: str, properties: Mapping[str, str], writable: bool = True) -> Storage:
    """Return the storage of a warehouse.

    :param warehouse: location, such as ``s3://bucket/lake`` or ``file:///data/lake``.
    :param properties: pyiceberg's, of the catalog; ``commit_service`` for a store without conditional writes.
    :param writable: whether to create a missing table of its rows.
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


def serve(name: str, catalog: ObjectCatalog | None) -> None:
    """Register a catalog by its name in Spark; None if a catalog of another type has the name now."""
    _served.pop(name, None)
    if catalog is not None:
        _served[name] = catalog


def served(name: str) -> ObjectCatalog | None:
    """Return the catalog with a name in Spark; None if it is of another type."""
    return _served.get(name)
