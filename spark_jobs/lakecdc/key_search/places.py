"""Find the places of a table's rows by their keys: one search serves to read the rows and to delete them.

Tasks read the key columns of the data files that may contain the keys, without deleted rows. Other columns are read
afterwards, only from row groups with hits. Data files that tasks cannot read with certainty are left to Iceberg's own
reader: :class:`UnreadError` gives the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.definition import spark_schema
from lakecdc.iceberg.expressions import BOUNDED, comparable_ends, rows_between
from lakecdc.iceberg.file_tasks import tasks_within_reach
from lakecdc.iceberg.live_deletes import NEWEST, EqualityDelete, Scopes, equality_deletes_at
from lakecdc.iceberg.stored_types import unread_columns
from lakecdc.key_search.keys import (
    MOST_KEYS,
    FileState,
    Seen,
    deleted_keys,
    key_columns,
    sent_keys,
    states_of,
    stored_in,
    within_bounds,
)
from lakecdc.key_search.match import delete_files, file_row
from lakecdc.key_search.place_tasks import PART, RowsTask
from lakecdc.key_search.tasks import FILE, HITS, Lookup, SearchTask, Stored, only, packed, searched_keys, unpacked
from lakecdc.local_relation import spread
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.model.iceberg_columns import holds_uuid
from lakecdc.reader.data_files import in_reach
from lakecdc.reader.data_files import refusal as refusal_to_read
from lakecdc.reader.projection import UnreadError, read_columns
from lakecdc.sql import quoted_column
from lakecdc.writer.deletes import Target, collect_results, count_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.file_tasks import FileTask
    from lakecdc.iceberg.table import Field, IcebergTable, Snapshot

log = logging.getLogger(__name__)

#: converts rows in the task that has read them
Then = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# minimum limit of hits in one file, for few keys
_LEAST_MOST = 10_000
_FORMAT = "write.format.default"


@dataclass(frozen=True)
class Places:
    """The live rows of some keys in a snapshot, with their places.

    :param key: field ids of the key, ascending.
    :param keys: the keys searched for: ``d0`` …, each once.
    :param rows: ``d0`` …, ``row_id``, ``position``, and ``place`` in the row group ``part`` of the data file ``file``.
    :param states: the searched data files, by number.
    :param stored: the columns that can be read.
    """

    table: IcebergTable
    key: tuple[int, ...]
    keys: pa.Table = field(repr=False)
    rows: pa.Table = field(repr=False)
    states: Mapping[int, FileState] = field(repr=False)
    stored: Stored = field(repr=False)

    def read(
        self, columns: Sequence[str], keys: pa.Table | None = None, then: Then | None = None, schema: str = ""
    ) -> DataFrame:
        """Return the rows of all or some keys, in columns that the search was made for.

        :param then: converts the rows in the tasks, to rows of the schema.
        """
        table, by_name = self.table, {column.name: column for column in self.stored.columns}
        stored = replace(self.stored, columns=tuple(by_name[name] for name in columns))
        types = spark_schema(table, columns)
        task = RowsTask(stored, to_arrow_schema(types))
        rows = self.rows if keys is None else only(self.rows, keys)
        frame = spread(table.spark, list(self._parts(rows)), PART)
        if then is None:
            return run_tasks(frame, task, types)
        return run_tasks(frame, lambda batches: then(task(batches)), schema)

    def _parts(self, rows: pa.Table) -> Iterator[tuple[str, int, bytes]]:
        if not rows.num_rows:
            return
        order = [(name, "ascending") for name in ("file", "part", "place")]
        rows = rows.select([name for name, _ in order]).sort_by(order)
        file, part, place = (rows[name].to_numpy() for name in rows.column_names)
        cuts = np.flatnonzero(np.diff(file) | np.diff(part)) + 1
        for begin, end in pairwise([0, *cuts.tolist(), len(file)]):
            yield self.states[int(file[begin])][0], int(part[begin]), place[begin:end].tobytes()

    def seen_in(self, states: Mapping[int, FileState]) -> Seen:
        """Return the hits in data files whose state was searched.

        :param states: by number, which may differ from the number in this search.
        """
        numbers = {state: number for number, state in states.items()}
        others = {number: numbers[state] for number, state in self.states.items() if state in numbers}
        known = self.rows.filter(pc.is_in(self.rows["file"], value_set=pa.array(others, pa.int32())))
        file = pa.array([others[number] for number in known["file"].to_pylist()], pa.int32())
        names = [*self.keys.column_names, "row_id", "position"]
        return Seen(self.keys, known.select(names).append_column("file", file), frozenset(others.values()))


def collect_keys(table: IcebergTable, keys: DataFrame, key: Sequence[str]) -> pa.Table:
    """Collect keys in the driver: ``d0`` …, by ascending field ids, without nulls and values beyond a column's type.

    :param keys: with the columns ``key``.
    :raises UnreadError: they are too many for tasks.
    """
    of_key = _fields(table, key)
    columns = [F.col(quoted_column(f.name)).try_cast(f.dataType) for f in spark_schema(table, [f.name for f in of_key])]
    named = [column.alias(f"d{place}") for place, column in enumerate(columns)]
    rows = keys.select(*named).dropna().limit(MOST_KEYS + 1).toArrow()
    if rows.num_rows > MOST_KEYS:
        raise UnreadError(f"there are more than {MOST_KEYS}")
    kinds = [column.field().type for column in key_columns(table, [one.id for one in of_key])]
    return rows.cast(pa.schema([(f"d{place}", kind) for place, kind in enumerate(kinds)]))


def _fields(table: IcebergTable, key: Sequence[str]) -> list[Field]:
    by_name = {one.name: one for one in table.fields}
    return sorted((by_name[name] for name in key), key=lambda one: one.id)


def find_places(
    table: IcebergTable, snapshot: Snapshot, key: Sequence[str], searched: pa.Table, columns: Sequence[str]
) -> Places:
    """Search a snapshot for the rows of some keys.

    :param searched: keys of :func:`collect_keys`.
    :param columns: to read later.
    :raises UnreadError: Iceberg's own reader has to look the keys up.
    """
    of_key, searched = _fields(table, key), searched.group_by(searched.column_names).aggregate([])
    key_ids, scopes, stored = tuple(field.id for field in of_key), Scopes(table), stored_in(table, columns)
    compared, live = key_columns(table, key_ids), equality_deletes_at(table, snapshot, scopes)
    sought = EqualityDelete(None, 0, "", 0, None, NEWEST, searched.num_rows, key_ids)
    where = _between(table, snapshot, of_key, searched)
    planned = list(tasks_within_reach(table, snapshot, [sought], scopes, where, live)) if searched.num_rows else []
    near = within_bounds(table, planned, compared, searched)
    tasks = [task for task in planned if task.number in near]
    known = delete_files(tasks)
    if len(known) < len(tasks) or not all(in_reach(task.location) for task in tasks):
        raise UnreadError("tasks cannot read all of its data files or position deletes")
    results = []
    if tasks:
        with ExitStack() as stack:
            content = packed([searched_keys(searched.columns)], compared)
            lookup = Lookup(compared, (sent_keys(table, stack, content),))
            hidden = _hidden(table, stack, lookup, _reaching(live, tasks))
            most, nowhere = max(_LEAST_MOST, 2 * searched.num_rows), Target("", stored.properties, {})
            task = SearchTask((lookup,), stored, nowhere, count_only, hidden, with_rows=True, most=most)
            # largest first, so that no large file starts last
            rows = [file_row(t, known[t.number]) for t in sorted(tasks, key=lambda t: t.records, reverse=True)]
            results = run_tasks(spread(table.spark, rows, FILE), task, HITS).collect()
    for why in collect_results(results)[1].values():
        raise UnreadError(why)
    log.info("%s: searched %d of %d data files for keys", table.name, len(tasks), len(planned))
    return Places(table, key_ids, searched, _hit_rows(results, searched), states_of(planned), stored)


def refusal(table: IcebergTable, key: Sequence[str], columns: Sequence[str]) -> str | None:
    """Return why tasks cannot look up keys in any file of the table; None if they can."""
    if table.format_version > NEWEST_VERSION:
        return f"the format version {table.format_version} is not supported"
    if why := refusal_to_read(table):
        return why
    if (form := table.properties.get(_FORMAT, "parquet")) != "parquet":
        return f"its files are in the format {form}"
    try:
        of_key = key_columns(table, [field.id for field in _fields(table, key)])
    except UnreadError as error:
        return str(error)
    if fixed := next((one.name for one in of_key if pa.types.is_fixed_size_binary(one.field().type)), None):
        return f"keys may differ in length from the key column {fixed}"
    fields = [field for field in table.schema_fields if field["name"] in (*key, *columns)]
    beyond = [*unread_columns(fields), *(c.name for c in read_columns(fields) if holds_uuid(c.field().type))]
    return f"Spark has another type for the column {beyond[0]}" if beyond else None


def _between(table: IcebergTable, snapshot: Snapshot, key: Sequence[Field], keys: pa.Table) -> Any:
    """Return the Iceberg expression of rows between the lowest and highest keys."""
    current = table.java.currentSnapshot()
    is_current = current is not None and int(current.snapshotId()) == snapshot.id
    # Iceberg looks up names in the schema of an older snapshot
    names = {now: old for old, now in ({} if is_current else table.names_at(snapshot.id)).items()}
    ends = {}
    for column, values in zip(key, keys.columns, strict=True):
        name = column.name if is_current else names.get(column.name)
        if name is not None and column.type in BOUNDED and keys.num_rows:
            if not pa.types.is_string(values.type):
                values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
            extremes = pc.min_max(values).as_py()
            ends[name] = comparable_ends(column.type, extremes["min"], extremes["max"])
    return rows_between(table, {name: pair for name, pair in ends.items() if pair is not None})


def _reaching(deletes: Sequence[EqualityDelete], tasks: Sequence[FileTask]) -> list[EqualityDelete]:
    """Return the deletes that apply to at least one of the data files."""
    oldest: dict[int | None, int] = {}
    for task in tasks:
        for scope in (task.scope, None):
            oldest[scope] = min(oldest.get(scope, task.sequence_number), task.sequence_number)
    return [delete for delete in deletes if delete.sequence_number > oldest.get(delete.scope, NEWEST)]


def _hidden(table: IcebergTable, stack: ExitStack, lookup: Lookup, deletes: Sequence[EqualityDelete]) -> Lookup | None:
    """Return the searched keys that equality deletes contain; None without such deletes."""
    if not deletes:
        return None
    ids = tuple(column.id for column in lookup.columns)
    if any(delete.field_ids != ids for delete in deletes):
        raise UnreadError("it has equality deletes by other columns")
    keys, unread = deleted_keys(table, lookup.columns, [(delete, 0, None) for delete in deletes], lookup.keys[0])
    if unread:
        raise UnreadError(f"tasks cannot read the equality deletes of {next(iter(unread))}")
    return Lookup(lookup.columns, (sent_keys(table, stack, packed(keys, lookup.columns)),))


def _hit_rows(results: Sequence[Any], keys: pa.Table) -> pa.Table:
    """Concatenate the rows that tasks have found."""
    columns = {name: pa.int64() for name in ("row_id", "position", "place")} | {"file": pa.int32(), "part": pa.int32()}
    schema = pa.schema([*keys.schema, *columns.items()])
    tables = [unpacked(row["hit_rows"]) for row in results if row["hit_rows"] is not None]
    if any(table["part"].null_count for table in tables):
        raise UnreadError("a data file has no row groups")
    return pa.concat_tables([schema.empty_table(), *tables])
