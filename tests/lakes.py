"""The catalog in a folder for tests of jobs and of the provider: SQLite, or an object store alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import MetastoreCatalog

#: the variable with the type of the catalog, ``sql`` or ``object_store``
VARIABLE = "LAKECDC_TEST_CATALOG"


def catalog_properties(folder: Path) -> dict[str, str]:
    """Return the properties of the catalog in a folder, in pyiceberg's names."""
    warehouse = {"warehouse": f"file://{folder}/warehouse"}
    if os.environ.get(VARIABLE) == "object_store":
        return {"type": "object_store", **warehouse}
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", **warehouse}


def open_catalog(properties: dict[str, Any]) -> MetastoreCatalog:
    """Open the catalog in pyiceberg."""
    given = {name: value for name, value in properties.items() if name != "type"}
    if properties["type"] == "object_store":
        from lakecdc.object_store.pyiceberg_catalog import ObjectStoreCatalog

        return ObjectStoreCatalog("lake", **given)
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("lake", **given)
