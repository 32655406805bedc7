"""Make a table's new metadata with Iceberg's core, in the session's JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pyiceberg.exceptions import CommitFailedException
from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.iceberg.jvm import java_causes, jvm
from lakecdc.object_store.storage import Document, check_creation

_DEFAULT_VERSION = 2
_THREADS = 4
# by the names of Java's exceptions
_MEANINGS: dict[str, Callable[[str], Exception]] = {
    "CommitFailedException": CommitFailedException,
    # a snapshot behind the table's sequence number or next row
    "RetryableValidationException": CommitFailedException,
    "ValidationException": InputError,
    "IllegalArgumentException": InputError,
    "IllegalStateException": InputError,
    "NullPointerException": InputError,
    "UnsupportedOperationException": UnsupportedError,
}


class JvmApplier:
    """An :class:`Applier` that applies updates with Iceberg's own code, for any format version.

    Every thread that calls the JVM keeps a connection and a thread there. The threads of a server come and go, so the
    calls run in a few permanent threads.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._iceberg, self._java = jvm(spark).org.apache.iceberg, jvm(spark).java
        self._threads = ThreadPoolExecutor(_THREADS, "lakecdc-metadata")

    def create(self, request: Document, location: str) -> str:
        return self._threads.submit(self._create, request, location).result()

    def apply(
        self, text: str, metadata_location: str, requirements: Sequence[Document], updates: Sequence[Document]
    ) -> str:
        return self._threads.submit(self._apply, text, metadata_location, requirements, updates).result()

    def _create(self, request: Document, location: str) -> str:
        with _meaning():
            core = self._iceberg
            schema = core.SchemaParser.fromJson(json.dumps(request["schema"]))
            spec, order = request.get("partition-spec"), request.get("write-order")
            properties = self._java.util.HashMap()
            for name, value in (request.get("properties") or {}).items():
                properties.put(name, value)
            metadata = core.TableMetadata.newTableMetadata(
                schema,
                core.PartitionSpecParser.fromJson(schema, json.dumps(spec))
                if spec
                else core.PartitionSpec.unpartitioned(),
                core.SortOrderParser.fromJson(schema, json.dumps(order)) if order else core.SortOrder.unsorted(),
                location,
                properties,
            )
            return str(core.TableMetadataParser.toJson(metadata))

    def _apply(
        self, text: str, metadata_location: str, requirements: Sequence[Document], updates: Sequence[Document]
    ) -> str:
        with _meaning():
            core = self._iceberg
            if text:
                base = core.TableMetadataParser.fromJson(metadata_location or None, text)
                for requirement in requirements:
                    core.UpdateRequirementParser.fromJson(json.dumps(requirement)).validate(base)
                builder = core.TableMetadata.buildFrom(base)
            else:
                check_creation(requirements)
                builder = core.TableMetadata.buildFromEmpty(_version(updates))
            for update in updates:
                core.MetadataUpdateParser.fromJson(json.dumps(update)).applyTo(builder)
            updated = builder.build()
            if text and updated.changes().isEmpty():
                return text
            return str(core.TableMetadataParser.toJson(updated))


def _version(updates: Sequence[Document]) -> int:
    """Return the format version of a table that updates create."""
    versions = (update.get("format-version") for update in updates if update.get("action") == "upgrade-format-version")
    return next((version for version in versions if isinstance(version, int)), _DEFAULT_VERSION)


@contextmanager
def _meaning() -> Iterator[None]:
    """Raise Java's exceptions as the errors that they mean."""
    try:
        yield
    except Exception as error:
        for java in java_causes(error):
            if (error_class := _MEANINGS.get(java.getClass().getSimpleName())) is not None:
                raise error_class(str(java.getMessage())) from error
        raise
