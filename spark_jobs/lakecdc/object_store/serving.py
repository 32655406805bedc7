"""The catalogs that this process serves to its Spark session, for what no client asks of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecdc.object_store.catalog import ObjectCatalog

_served: dict[str, ObjectCatalog] = {}


def serve(name: str, catalog: ObjectCatalog | None) -> None:
    """Make a catalog known by its name in Spark; None if the name is now that of a catalog of another type."""
    _served.pop(name, None)
    if catalog is not None:
        _served[name] = catalog


def served(name: str) -> ObjectCatalog | None:
    """Return the catalog of a name in Spark; None if it is of another type."""
    return _served.get(name)
