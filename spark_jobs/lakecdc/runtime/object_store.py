"""Start the endpoint through which Spark uses an object-store catalog: in the driver, on loopback only."""

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
    """Return Spark's settings for the endpoint of a catalog.

    The endpoint starts at the first use, once per application and catalog, and stops when the process exits. Executors
    read and write files without the catalog.

    :param name: of the catalog in Spark and in jobs.
    :param properties: of the catalog, with secrets resolved.
    """
    catalog, endpoint = _started(spark.sparkContext, tuple(sorted(properties.items())))
    serve(name, catalog)
    # otherwise Spark itself deletes the files of a purged table, and frees version numbers
    return {"uri": endpoint.uri, "token": endpoint.token, "rest-catalog-purge": "true"}


@cache
def _started(context: SparkContext, properties: tuple[tuple[str, str], ...]) -> tuple[ObjectCatalog, Endpoint]:
    from pyspark.sql import SparkSession

    catalog = open_catalog(dict(properties), JvmApplier(SparkSession(context)))
    endpoint = Endpoint(catalog, writable=True).start()
    atexit.register(endpoint.stop)
    return catalog, endpoint
