"""The exact engine: Iceberg's own reader marks the rows that equality deletes match.

Iceberg handles nulls, promoted types, dropped columns, scopes and sequence numbers. Each task holds all delete rows of
its file in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.iceberg.file_tasks import java_tasks
from lakecdc.iceberg.scan import read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.local_relation import local_relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.file_tasks import FileTask
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.delete_files.plan import Group


@contextmanager
def equality_hits(table: IcebergTable, group: Group) -> Iterator[DataFrame]:
    """Return the positions that the group's equality deletes match.

    The tasks have only the equality deletes, so that every marked row is marked by them.

    :return: ``file_number`` int, ``position`` long.
    """
    tasks = [task for task in group.tasks if task.equality_deletes]
    with staged_tasks(table, java_tasks(tasks, "equality")) as staged:
        yield marked(table, staged, tasks)


@contextmanager
def positions_known(table: IcebergTable, tasks: Sequence[FileTask]) -> Iterator[DataFrame]:
    """Return the positions in existing position deletes and deletion vectors.

    :return: ``file_number`` int, ``position`` long.
    """
    with staged_tasks(table, java_tasks(tasks, "others")) as staged:
        yield marked(table, staged, tasks)


def marked(table: IcebergTable, staged: str, tasks: Sequence[FileTask]) -> DataFrame:
    """Return the rows that Iceberg's reader marks as deleted in staged tasks.

    :param staged: id of the staged tasks.
    :param tasks: the files they read.
    :return: ``file_number`` int, ``position`` long.
    """
    rows = read_staged(table, staged).where("_deleted").select("_file", "_pos")
    return rows.join(F.broadcast(file_numbers(table, tasks)), "_file").selectExpr("file_number", "_pos AS position")


def file_numbers(table: IcebergTable, tasks: Sequence[FileTask]) -> DataFrame:
    """Return the files of tasks, as named by ``_file``, with number, data sequence number and scope."""
    rows = [(task.location, task.number, task.sequence_number, task.scope) for task in tasks]
    return local_relation(table.spark, rows, "_file string, file_number int, sequence_number long, scope int")
