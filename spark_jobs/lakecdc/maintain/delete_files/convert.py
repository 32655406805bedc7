"""Conversion of a group's deletes to new delete files, with the engine that suits it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecdc.maintain.delete_files import convert_native
from lakecdc.maintain.delete_files.match import deleted_positions
from lakecdc.writer.deletes import write

if TYPE_CHECKING:
    from lakecdc.iceberg.delete_file_objects import WrittenDeletes
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.delete_files.match import Engine
    from lakecdc.maintain.delete_files.plan import Group
    from lakecdc.writer.deletes import Target, Writer


def convert(table: IcebergTable, group: Group, engine: Engine, target: Target, writer: Writer) -> list[WrittenDeletes]:
    """Find the deleted positions of a group's data files and write them.

    :param group: with at least one data file.
    :param engine: the native one leaves files that it cannot read to the join.
    :return: one entry per data file with newly deleted positions or merged deletes.
    """
    written: list[WrittenDeletes] = []
    if engine == "native":
        written, left = convert_native.convert(table, group, target, writer)
        if not left:
            return written
        group, engine = replace(group, tasks=tuple(t for t in group.tasks if t.number in left)), "join"
    tasks = min(len(group.tasks), 4 * table.spark.sparkContext.defaultParallelism)
    with deleted_positions(table, group, engine) as positions:
        return written + write(positions, target, writer, tasks)
