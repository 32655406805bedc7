"""The table's FileIO for code that writes files itself: through Java in the driver, through pyiceberg in tasks."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import java_message, listed, mapping
from lakecdc.iceberg.stored_files import delete_folder
from lakecdc.iceberg.uploads import Elsewhere, Output, Upload
from lakecdc.metadata.locations import in_s3, is_relative
from lakecdc.metadata.marked_folders import mark
from lakecdc.metadata.names import APPLICATION_PREFIX
from lakecdc.runtime.worker import without_pandas

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, InputFile

    from lakecdc.iceberg.table import IcebergTable

log = logging.getLogger(__name__)

# the same map has catalog properties, such as a database password, which must not reach tasks
_STORAGE = ("s3.", "client.", "gcs.", "adls.", "oss.", "hdfs.")


def storage_properties(table: IcebergTable) -> dict[str, str]:
    """Return the secret settings of the table's FileIO, with vended credentials, in pyiceberg's names for tasks."""
    io = table.java.io()
    settings = mapping(io.properties())
    for credential in _vended(io):
        if table.location.startswith(credential.prefix()):
            settings |= mapping(credential.config())
    return to_pyiceberg(settings)


def to_pyiceberg(properties: Mapping[str, str]) -> dict[str, str]:
    """Map the storage settings among Java's FileIO properties to pyiceberg's names; drop everything else."""
    settings = {key: value for key, value in properties.items() if key.startswith(_STORAGE)}
    path_style = settings.pop("s3.path-style-access", None)
    if path_style is not None:
        settings["s3.force-virtual-addressing"] = "false" if path_style.lower() == "true" else "true"
    return settings


def marked_location(table: IcebergTable, below: str = "") -> str:
    """Return a location for data and delete files, as the table's location provider places new ones.

    One folder is named after the job and the Spark application (``lakecdc.metadata.marked_folders``), above ``below``.
    """
    # the name is the session's: a process may run several jobs, one after another, in one application
    job, context = str(table.spark.conf.get("spark.app.name")), table.spark.sparkContext
    folder = mark(job.removeprefix(APPLICATION_PREFIX), context.startTime, context.applicationId).folder
    return str(table.java.locationProvider().newDataLocation("/".join(filter(None, (folder, below)))))


def new_folder(table: IcebergTable, purpose: str) -> str:
    """Return a unique location in the application's folder, whose name begins with the purpose."""
    return marked_location(table, f"{purpose}-{uuid.uuid4()}")


@contextmanager
def folder_of_work(table: IcebergTable, purpose: str) -> Iterator[str]:
    """Yield a folder of :func:`new_folder`, discarded if the work that writes to it fails."""
    folder = new_folder(table, purpose)
    try:
        yield folder
    except BaseException:
        discard_folder(table, folder)
        raise


def discard_folder(table: IcebergTable, folder: str) -> None:
    """Delete everything below a location of :func:`new_folder`, without raising; orphan removal finds the rest."""
    try:
        delete_folder(table, folder)
    except Exception as error:
        log.warning("%s: files below %s were left: %s", table.name, folder, java_message(error))


def discard_files(table: IcebergTable, locations: Iterable[str]) -> None:
    """Delete uncommitted files without raising; orphan removal finds the rest."""
    for location in locations:
        try:
            table.java.io().deleteFile(location)
        except Exception as error:
            log.warning("%s: %s was left: %s", table.name, location, java_message(error))


def output(properties: Mapping[str, str], location: str) -> Output:
    """Begin to write a file in a Python task, with :func:`storage_properties`; an existing one is replaced."""
    return Upload(properties, location) if in_s3(location) else Elsewhere(_file_io(properties, location), location)


def source(properties: Mapping[str, str], location: str) -> InputFile:
    """Open an input file in a Python task, with :func:`storage_properties`."""
    return _file_io(properties, location).new_input(location)


def reaches(location: str) -> bool:
    """Check whether :func:`output` and :func:`source` support a location: absolute, and not truncated by pyiceberg.

    Partition values do not matter, because Iceberg escapes them.
    """
    return not is_relative(location) and not {"#", "?"}.intersection(location)


def _file_io(properties: Mapping[str, str], location: str) -> FileIO:
    scheme, colon, _ = location.partition("://")
    return _of_scheme(tuple(sorted(properties.items())), f"{scheme}://" if colon else "")


# a FileIO keeps its connections, and a task opens many files
@lru_cache(maxsize=4)
def _of_scheme(properties: tuple[tuple[str, str], ...], scheme: str) -> FileIO:
    with without_pandas():
        from pyiceberg.io import load_file_io

        return load_file_io(dict(properties), scheme)


def _vended(io: Any) -> list[Any]:
    try:
        return listed(io.credentials())
    except Exception:
        # a FileIO without SupportsStorageCredentials: py4j finds no such method
        return []
