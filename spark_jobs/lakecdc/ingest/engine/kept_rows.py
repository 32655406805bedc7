"""Rows of a source without messages that could not be applied: kept as JSON, and made events again.

Beside ``op``, ``row``, ``open`` and ``old_key`` of the change frame, before any cleaning, the JSON has the names of the
``key``, the Spark SQL types of the ``columns`` and, where the source tells them, the ``numbers`` that these keep
when they are renamed. JSON without a key is an earlier release's, and no event is made of it: its times are cut to
milliseconds, it does not tell the key that the row had before, and deletes that came after it were not remembered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from lakecdc.contract.target import Target
from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.kept_events import DecodeKept, Shape, shape_text
from lakecdc.ingest.engine.table_fields import chosen_type
from lakecdc.ingest.envelopes.json_values import try_parse_json
from lakecdc.ingest.formats.changes import REJECTED
from lakecdc.ingest.formats.rows.cells import stored_type
from lakecdc.model.columns import arrow_type
from lakecdc.model.order import moment
from lakecdc.sql import EXACT_JSON, canonical, exact_json, quoted_column, sql_type


def kept_json(events: DataFrame, key: Sequence[str], numbers: Mapping[str, int | None] | None) -> Expression:
    """Return the JSON of events of a change frame.

    :param numbers: of the source's columns, by name; None where it does not tell them.
    """
    types: StructType = events.schema["row"].dataType  # type: ignore[assignment]
    columns = [F.lit(x) for f in types.fields for x in (f.name, sql_type(f.dataType))]
    told = [F.lit(x) for name, number in (numbers or {}).items() if number is not None for x in (name, number)]
    document = F.struct(
        *("op", "row", "open", "old_key"),
        F.array(*map(F.lit, key)).alias("key"),
        F.create_map(*columns).alias("columns"),
        *([F.create_map(*told).alias("numbers")] if told else []),
    )
    return exact_json(document)


def decode_kept(
    rows: DataFrame,
    target: Target,
    known: Known,
    numbers: Mapping[str, int | None] | None = None,
    infinity: str = "quarantine",
) -> Decoded:
    """Make events of kept rows, with the order keys they had.

    :param rows: ``changes.REJECTED``, as the quarantine has them.
    :param known: the table that they are applied to, its columns by the source's names.
    :param numbers: the source's columns as it has them, each with its number; empty if they are not known.
    :param infinity: option of the source: what its texts of infinite dates and times become.
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
    """Return the shapes of rows by their texts, the newest first, with present spellings of types."""
    text = F.udf(lambda value: shape_text(try_parse_json(value and bytes(value))), "string", useArrow=False)
    found = rows.groupBy(text("value").alias("shape")).agg(F.max("order").alias("newest"))
    shapes = {}
    for row in found.where("shape IS NOT NULL").orderBy(F.desc("newest")).collect():
        columns, numbers, key = json.loads(row["shape"])
        types = {name: canonical(kind) for name, kind in columns.items()}
        shapes[row["shape"]] = Shape(types, numbers or {}, tuple(key))
    return shapes


def _plan(
    shapes: Mapping[str, Shape], target: Target, known: Known, numbers: Mapping[str, int | None], infinity: str
) -> DecodeKept:
    """Choose the table's columns and key, and the shapes whose rows enter it."""
    types, chosen = dict(known.types), {name: chosen_type(target, name) for name in target.columns}
    kept, keys = dict[str | None, dict[str, Column]](), dict[str | None, tuple[str, ...]]()
    for text, shape in shapes.items():
        names = shape.names(target, numbers)
        kept[text] = {new: Column(name, shape.columns[name]) for name, new in names.items()}
        keys[text] = tuple(names.get(name, name) for name in shape.key)
        types |= {new: stored_type(own, chosen.get(new), types.get(new)) for new, own in kept[text].items()}
    wanted = known.key or target.key
    key = next((k for k in keys.values() if not wanted or {*k} == {*wanted}), wanted)
    return DecodeKept(types, key, {text: kept[text] for text in kept if {*keys[text]} == {*key}}, infinity)


def _decoded(rows: DataFrame, task: DecodeKept) -> DataFrame:
    """Return kept rows with the ``event`` of each; Spark parses the values of nested types."""
    event = F.col("event")
    for name, kind in ((name, kind) for name, kind in task.types.items() if arrow_type(kind) is None):
        text = F.concat(F.lit('{"value":'), F.col("event.row")[name], F.lit("}"))
        options = {**EXACT_JSON, "columnNameOfCorruptRecord": "corrupt"}
        made = F.from_json(text, f"value {kind}, corrupt string", options)
        misfit = F.when(made["corrupt"].isNotNull(), f"values do not fit their columns: {name} ({kind})")
        event = event.withField("problem", F.coalesce(event["problem"], misfit))
        event = event.withField(f"row.{quoted_column(name)}", made["value"])
    event_type = from_arrow_type(task.type, prefer_timestamp_ntz=True)
    schema = StructType([*rows.schema.fields, StructField("event", event_type)])
    return rows.mapInArrow(task, schema).withColumn("event", event)


def _with_deletes_of_moved_keys(changes: DataFrame) -> DataFrame:
    """Add the delete of the row under the old key to an update that changes the key."""
    nothing = {name: F.lit(None).cast(changes.schema[name].dataType) for name in ("row", "open", "old_key")}
    moved = changes.where("old_key IS NOT NULL").withColumns({"op": F.lit("d"), "key": F.col("old_key")})
    return changes.unionByName(moved.withColumns(nothing))
