"""Open a catalog in an object store by the properties of its connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import SpecError
from lakecdc.contract.runtime import OBJECT_STORE, catalog_type
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.opened import open_storage
from lakecdc.object_store.proof import prove
from lakecdc.object_store.storage import DeniedError

if TYPE_CHECKING:
    from lakecdc.object_store.applier import Applier

WAREHOUSE, READABLE_PATHS = "warehouse", "readable_paths"
_SWITCH = {"true": True, "false": False}


def open_catalog(properties: Mapping[str, Any], applier: Applier, *, writable: bool = True) -> ObjectCatalog:
    """Open the catalog in a warehouse whose storage has been proven to keep the conditions of writes.

    A login that may not write opens it for reads, which take no proof.

    :param properties: ``warehouse``, ``readable_paths`` and those of the storage, without references to secrets.
    :param writable: whether anything is to be written.
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
