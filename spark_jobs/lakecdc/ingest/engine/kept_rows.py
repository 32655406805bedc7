"""Store rejected rows of sources without messages as JSON, and decode them to events again.

Beside ``op``, ``row``, ``open`` and ``old_key`` of the change frame, before any cleaning, the JSON has the names of the
``key``, the Spark SQL types of the ``columns`` and, if the source has them, their ``numbers``, which renames do not
change. JSON without a key is from an earlier release and is not decoded: its times are cut to milliseconds, it lacks
the row's old key, and later deletes were not remembered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from lakecdc.contract.target import Target
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.table_fields import chosen_type
from lakecdc.ingest.envelopes.json_values import Object, UnreadableError, parse_each, parse_json, try_parse_json
from lakecdc.ingest.formats.changes import REJECTED
from lakecdc.ingest.formats.rows.cells import stored_type
from lakecdc.ingest.formats.text_columns import OUTERMOST
from lakecdc.model.columns import DECIMAL, ColumnType, Parser, arrow_type, parse_number
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS, moment
from lakecdc.model.tokens import MisfitError, Nested, as_token, to_text
from lakecdc.runtime.worker import settle
from lakecdc.sql import EXACT_JSON, canonical, exact_json, quoted_column, sql_type

_OF_EARLIER_RELEASE = (
    "an earlier release stored less of it than a replay needs; a change of its row at the source updates the table"
)
_UNREADABLE = "it is not the JSON of a change; read its row again at the source"
_OTHER_KEY = "it was stored when the table had another key"
# rows of a full load without a key have the same order key; their places distinguish equal rows
_TWIN = re.compile(r".*#([0-9]+)", re.DOTALL)


class StaysError(ValueError):
    """A kept row cannot be applied and stays in the quarantine."""


@dataclass(frozen=True)
class Shape:
    """Columns and key of kept rows, from one state of the source's table.

    :param numbers: numbers of the source's columns by name; renames do not change them.
    """

    columns: Mapping[str, str]
    numbers: Mapping[str, int]
    key: tuple[str, ...]

    def names(self, target: Target, known: Mapping[str, int | None]) -> dict[str, str]:
        """Return the current names of the columns by their former ones, without dropped columns.

        :param known: current numbers of the source's columns; empty if unknown.
        """
        by_number = {number: name for name, number in known.items() if number is not None}
        present = {name: by_number[n] for name, n in self.numbers.items() if n in by_number and name in self.columns}
        used = {*present.values(), *(name for name, n in self.numbers.items() if known.get(name, n) not in (n, None))}
        present |= {name: name for name in self.columns if name not in present and name not in used}
        dropped = {name for name in present.values() if name not in known} if known else set()
        left_out = {*target.exclude_columns, *(dropped if target.on_dropped_column == "drop" else ())}
        return {name: new for name, new in present.items() if new not in left_out}


def shape_text(document: Any) -> str | None:
    """Return the shape in the parsed JSON of a kept row, as text; None if it is incomplete."""
    described = [document.get(name) for name in ("columns", "numbers", "key")] if type(document) is dict else [None]
    return to_text(described) if type(described[0]) is dict and type(described[-1]) is list else None


@dataclass(frozen=True)
class DecodeKept:
    """Task that adds its ``event`` to each kept row, with the ``problem`` if it cannot be applied.

    Values of types without an Arrow parser stay JSON.

    :param columns: the kept columns by their current names, by the shape's text.
    :param infinity: option of the source: how infinite dates and times are converted.
    """

    types: Mapping[str, str]
    key: tuple[str, ...]
    columns: Mapping[str | None, Mapping[str, Column]]
    infinity: str

    @property
    def type(self) -> pa.StructType:
        types = {name: arrow_type(kind) or pa.string() for name, kind in self.types.items()}
        key = pa.struct([(name, types[name]) for name in self.key] or [("none", pa.string())])
        members = {**dict.fromkeys(("problem", "op", "order"), pa.string()), "key": key}
        members |= {"row": pa.struct([*types.items()]), "open": pa.list_(pa.string()), "old_key": key}
        return pa.struct([*members.items()])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        kind = self.type
        for batch in batches:
            events = list[dict[str, Any]]()
            others = (batch.column(name).to_pylist() for name in ("order", "place"))
            for row in zip(parse_each(batch.column("value")), *others, strict=True):
                try:
                    events.append(self.event(*row))
                except StaysError as error:
                    events.append({"problem": str(error)})
            yield batch.append_column("event", pa.array(events, kind))

    def event(self, document: Any, order: str, place: str) -> dict[str, Any]:
        """Return the event of a kept row's parsed JSON, with dates and times as Arrow stores them.

        :raises StaysError: it cannot be applied.
        """
        columns, op = self.columns.get(shape_text(document)), document.get("op") if type(document) is dict else None
        if columns is None and op is not None:
            raise StaysError(_OF_EARLIER_RELEASE if document.get("key") is None else _OTHER_KEY)
        if columns is None or type(op) is not str:
            raise StaysError(_UNREADABLE)
        row, misfits = self._typed(document.get("row"), self.types, columns)
        if misfits:
            raise StaysError(f"values do not fit their columns: {', '.join(misfits)}")
        key, old_key = {name: row[name] for name in self.key}, None
        if None in key.values():
            raise StaysError("no value for a key column")
        if document.get("old_key") is not None:
            old_key, _ = self._typed(document["old_key"], self.key, columns)
            if None in old_key.values():
                raise StaysError("the old key does not fit its columns")
        left_out = document.get("open")
        opened = [name for name, own in columns.items() if type(left_out) is list and own.name in left_out]
        twin = _TWIN.fullmatch(place) if op == "r" and not key else None
        if twin:
            order = f"{order[:EVENT_DIGITS]}{int(twin[1]) - 1:0{ARRIVAL_DIGITS}x}"
        # a delete was stored with its key only
        image = None if op == "d" and key else row
        return {"op": op, "key": key, "row": image, "open": opened or None, "old_key": old_key, "order": order}

    def _typed(self, image: Any, names: Iterable[str], columns: Mapping[str, Column]) -> tuple[Object, list[str]]:
        """Return values of an image by column, and the columns whose values do not fit.

        :raises StaysError: it is not an image of the kept columns.
        """
        if type(image) is not dict:
            raise StaysError(_UNREADABLE)
        values, misfits = dict.fromkeys(names), list[str]()
        for name, own in ((name, columns[name]) for name in values if name in columns):
            kind = self.types[name]
            try:
                values[name] = find_parser(own.type, kind, self.infinity)(as_token(image.get(own.name)))
            except MisfitError:
                misfits.append(f"{name} ({kind})")
        return values, misfits


@cache
def find_parser(kept_type: str, sql_type: str, infinity: str = "quarantine") -> Parser:
    """Return the parser of kept values for a column: that of sources, except where Spark writes differently."""
    if arrow_type(sql_type) is None:
        return partial(_json_text, is_text=kept_type == "string")
    parse = ColumnType(sql_type).parser()
    if kept_type == "string" and sql_type in OUTERMOST and infinity != "quarantine":
        low, high = OUTERMOST[sql_type] if infinity == "bounds" else (None, None)
        return lambda value: parse({"-infinity": low, "infinity": high}.get(value, value))
    if sql_type == "string" and DECIMAL.match(kept_type):
        return lambda value: None if value is None else f"{parse_number(value):f}"
    if sql_type == "string" and kept_type in ("timestamp", "timestamp_ntz"):
        moment, text = ColumnType(kept_type).parser(), ColumnType("string", "epoch_micros").parser()
        return lambda value: text(moment(value))
    return parse


def _json_text(value: Any, *, is_text: bool) -> str | None:
    """Return the JSON of a value of a type that Spark parses; a text may be JSON itself."""
    if value is None or isinstance(value, Nested):
        return value
    try:
        return to_text(parse_json(value) if is_text and isinstance(value, str) else value)
    except UnreadableError as error:
        raise MisfitError(str(error)) from None


def kept_json(events: DataFrame, key: Sequence[str], numbers: Mapping[str, int | None] | None) -> Expression:
    """Return the JSON of events of a change frame.

    :param numbers: numbers of the source's columns by name; None if it has none.
    """
    types: StructType = events.schema["row"].dataType  # type: ignore[assignment]
    columns = [F.lit(x) for f in types.fields for x in (f.name, sql_type(f.dataType))]
    pairs = [F.lit(x) for name, number in (numbers or {}).items() if number is not None for x in (name, number)]
    document = F.struct(
        *("op", "row", "open", "old_key"),
        F.array(*map(F.lit, key)).alias("key"),
        F.create_map(*columns).alias("columns"),
        *([F.create_map(*pairs).alias("numbers")] if pairs else []),
    )
    return exact_json(document)


def decode_kept(
    rows: DataFrame,
    target: Target,
    known: Known,
    numbers: Mapping[str, int | None] | None = None,
    infinity: str = "quarantine",
) -> Decoded:
    """Decode kept rows to events with their original order keys.

    :param rows: ``changes.REJECTED`` rows of the quarantine.
    :param known: the target table, with columns by the source's names.
    :param numbers: the source's current columns with their numbers; empty if unknown.
    :param infinity: option of the source: how infinite dates and times are converted.
    :return: the changes, persisted; the caller clears Spark's cache when the batch is done.
    """
    task = _plan(_shapes(rows), target, known, numbers or {}, infinity)
    decoded = _decoded(rows.select(*REJECTED), task).persist()
    changes = decoded.where("event.problem IS NULL").select("event.*", "source_time").drop("problem")
    newest, accepted = changes.agg(F.max(F.unix_micros("source_time")), F.count("*")).collect()[0]
    lost = decoded.where("event.problem IS NOT NULL").withColumn("reason", F.col("event.problem"))
    lost = lost.select(*REJECTED).localCheckpoint()
    rejections = lost.count()
    return Decoded(
        tuple(Column(name, kind) for name, kind in (task.types if accepted else known.types).items()),
        task.key,
        Rows(_with_deletes_of_moved_keys(changes)) if accepted else None,
        Rejected(lost, rejections) if rejections else None,
        newest=moment(newest) if newest is not None else None,
        events=rejections + accepted,
    )


def _shapes(rows: DataFrame) -> dict[str, Shape]:
    """Return the shapes of rows by their texts, the newest first, with current spellings of types."""
    text = F.udf(lambda value: shape_text(try_parse_json(value and bytes(value))), "string", useArrow=False)
    newest = rows.groupBy(text("value").alias("shape")).agg(F.max("order").alias("newest"))
    shapes = {}
    for row in newest.where("shape IS NOT NULL").orderBy(F.desc("newest")).collect():
        columns, numbers, key = json.loads(row["shape"])
        types = {name: canonical(kind) for name, kind in columns.items()}
        shapes[row["shape"]] = Shape(types, numbers or {}, tuple(key))
    return shapes


def _plan(
    shapes: Mapping[str, Shape], target: Target, known: Known, numbers: Mapping[str, int | None], infinity: str
) -> DecodeKept:
    """Choose the table's columns and key, and the shapes whose rows can be applied."""
    types, chosen = dict(known.types), {name: chosen_type(target, name) for name in target.columns}
    columns, keys = dict[str | None, dict[str, Column]](), dict[str | None, tuple[str, ...]]()
    for text, shape in shapes.items():
        names = shape.names(target, numbers)
        columns[text] = {new: Column(name, shape.columns[name]) for name, new in names.items()}
        keys[text] = tuple(names.get(name, name) for name in shape.key)
        types |= {new: stored_type(own, chosen.get(new), types.get(new)) for new, own in columns[text].items()}
    target_key = known.key or target.key
    key = next((k for k in keys.values() if not target_key or {*k} == {*target_key}), target_key)
    return DecodeKept(types, key, {text: columns[text] for text in columns if {*keys[text]} == {*key}}, infinity)


def _decoded(rows: DataFrame, task: DecodeKept) -> DataFrame:
    """Return kept rows with the ``event`` of each; Spark parses the values of nested types."""
    event = F.col("event")
    for name, kind in ((name, kind) for name, kind in task.types.items() if arrow_type(kind) is None):
        text = F.concat(F.lit('{"value":'), F.col("event.row")[name], F.lit("}"))
        options = {**EXACT_JSON, "columnNameOfCorruptRecord": "corrupt"}
        parsed = F.from_json(text, f"value {kind}, corrupt string", options)
        misfit = F.when(parsed["corrupt"].isNotNull(), f"values do not fit their columns: {name} ({kind})")
        event = event.withField("problem", F.coalesce(event["problem"], misfit))
        event = event.withField(f"row.{quoted_column(name)}", parsed["value"])
    event_type = from_arrow_type(task.type, prefer_timestamp_ntz=True)
    schema = StructType([*rows.schema.fields, StructField("event", event_type)])
    return run_tasks(rows, task, schema).withColumn("event", event)


def _with_deletes_of_moved_keys(changes: DataFrame) -> DataFrame:
    """Add the delete under the old key to key updates."""
    nothing = {name: F.lit(None).cast(changes.schema[name].dataType) for name in ("row", "open", "old_key")}
    moved = changes.where("old_key IS NOT NULL").withColumns({"op": F.lit("d"), "key": F.col("old_key")})
    return changes.unionByName(moved.withColumns(nothing))
