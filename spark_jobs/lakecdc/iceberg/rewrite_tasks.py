"""JVM support for rewriting data files: a separate session, scan tasks to read, staged files to commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakecdc.iceberg.bulk import COLLECTION, PREDICATE, java_calls
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import jvm, listed
from lakecdc.iceberg.scan import TaskBuilder
from lakecdc.iceberg.table import IcebergTable

#: row lineage below this is stored in the file; from here on the reader inherited it (see :func:`output_tasks`)
INHERITED_LINEAGE = 2**62
# one bin for everything, filled in the order of the tasks
_ALL_IN_ONE = {"split-size": str(2**60), "lookback": "1", "file-open-cost": "0"}


@dataclass(frozen=True)
class StagedFile:
    """A data file that was written but not committed."""

    location: str
    bytes: int
    rows: int


def rewrite_session(spark: SparkSession) -> SparkSession:
    """Copy the session such that plans keep their partitions.

    Adaptive execution would merge or split them and with them the files; Iceberg's own rewrite actions clone the
    session for the same reason. Hashing maps is allowed because a rewrite does not reorder their entries.
    """
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.legacy.allowHashOnMapType", "true")
    return session


def runs_session(spark: SparkSession) -> SparkSession:
    """Copy the session such that Python tasks get runs of many rows, one value each, one by one."""
    session = rewrite_session(spark)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    return session


def read_staged(session: SparkSession, group: str) -> DataFrame:
    """Read rows of staged scan tasks with deletes applied; in format v3 with the two lineage columns."""
    return session.read.format("iceberg").load(group)


def read_in_sequence(session: SparkSession, groups: Sequence[str]) -> DataFrame:
    """Read several groups, each as one Spark partition in the order of its tasks; see :func:`read_staged`."""
    reader = session.read.format("iceberg").options(**_ALL_IN_ONE)
    return reduce(lambda left, right: left.union(right), [reader.load(group) for group in groups])


def plan_tasks(table: IcebergTable, snapshot_id: int, locations: Collection[str]) -> dict[str, Any]:
    """Return scan tasks of chosen data files of a snapshot, each with its delete files, by location."""
    calls, view = java_calls(table.spark), jvm(table.spark)
    planned = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals().planFiles()
    (location,) = calls.content(calls.file, "location")
    chosen = calls.method(COLLECTION, "contains", OBJECT)(view.java.util.HashSet(calls.sent(locations)), location)
    tasks = view.org.apache.iceberg.io.CloseableIterable.filter(planned, calls.interface(PREDICATE, chosen))
    return {
        name: task
        for part in calls.parts(tasks)
        for (name,), task in zip(calls.rows(part, location), listed(part), strict=True)
    }


def removable_deletes(table: IcebergTable, tasks: Iterable[Any]) -> list[Any]:
    """Return delete files that apply to one of the tasks' data files and to nothing else.

    :param tasks: scan tasks of all data files that a commit removes.
    :return: deletion vectors and position-delete files of one data file each; a delete file of a whole partition and
        equality deletes may be needed by others.
    """
    util = jvm(table.spark).org.apache.iceberg.util.ContentFileUtil
    removable = {}
    for task in tasks:
        location = str(task.file().location())
        for delete in listed(task.deletes()):
            if delete.content().toString() != "POSITION_DELETES":
                continue
            referenced = util.referencedDataFile(delete)
            if referenced is not None and str(referenced) == location:
                # one Puffin file has many vectors, so its location alone does not identify one
                removable[str(delete.location()), delete.contentOffset()] = delete
    return list(removable.values())


def output_tasks(table: IcebergTable, files: Sequence[Any]) -> list[Any]:
    """Build scan tasks that read staged Java ``DataFile`` objects before the commit.

    Iceberg's reader omits row lineage for files without a first row id, which the commit assigns. The copies read here
    have one, and a sequence number, so high that inherited values are distinct from those in the file.
    """
    builder, tasks = TaskBuilder(table), []
    for file in files:
        copy = jvm(table.spark).org.apache.iceberg.DataFiles.builder(table.java.specs().get(file.specId())).copy(file)
        if table.format_version >= 3:
            copy = copy.withFirstRowId(INHERITED_LINEAGE)
        data_file = copy.build()
        data_file.setDataSequenceNumber(INHERITED_LINEAGE)
        tasks.append(builder.task(data_file))
    return tasks


def staged_file(file: Any) -> StagedFile:
    """Return the facts of a staged Java ``DataFile``."""
    return StagedFile(str(file.location()), int(file.fileSizeInBytes()), int(file.recordCount()))
