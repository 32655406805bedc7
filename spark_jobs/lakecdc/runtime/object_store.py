"""The endpoint through which Spark uses a catalog in an object store: in the driver, on loopback alone."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from lakecdc.iceberg.metadata_updates import JvmApplier
from lakecdc.object_store.endpoint import Endpoint
from lakecdc.object_store.open_catalog import open_catalog, serve

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from lakecdc.object_store.catalog import ObjectCatalog


def endpoint_address(spark: SparkSession, name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which Spark uses the endpoint of a catalog.

    It starts at the first use, once for an application and a catalog, and stops when the process exits. Executors
    read and write files by themselves, and ask no catalog.

    :param name: of the catalog in Spark, by which jobs find it as well.
    :param properties: of the catalog, with secrets resolved.
    """
    catalog, endpoint = _started(spark.sparkContext, tuple(sorted(properties.items())))
    serve(name, catalog)
    # otherwise Spark deletes the files of a purged table by itself, and frees numbers of versions
    return {"uri": endpoint.uri, "token": endpoint.token, "rest-catalog-purge": "true"}


@cache
def _started(context: SparkContext, properties: tuple[tuple[str, str], ...]) -> tuple[ObjectCatalog, Endpoint]:
    from pyspark.sql import SparkSession

    catalog = open_catalog(dict(properties), JvmApplier(SparkSession(context)))
    endpoint = Endpoint(catalog, writable=True).start()
    atexit.register(endpoint.stop)
    return catalog, endpoint
