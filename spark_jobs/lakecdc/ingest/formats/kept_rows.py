"""Rows of a source without messages that could not be applied: kept as JSON, and made events again.

Beside ``op``, ``row``, ``open`` and ``old_key`` of the change frame, before any cleaning, the JSON has the names of the
``key``, the Spark SQL types of the ``columns`` and, where the source tells them, the ``numbers`` that these keep
when they are renamed. JSON without a key is an earlier release's, and no event is made of it: its times are cut to
milliseconds, it does not tell the key that the row had before, and deletes that came after it were not remembered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.formats.changes import REJECTED, listed, no_key, union
from lakecdc.ingest.formats.decoded import Decoded
from lakecdc.ingest.formats.rows.cells import misfit, stored_type, value
from lakecdc.ingest.formats.table_fields import chosen_type
from lakecdc.ingest.formats.text_columns import OUTERMOST
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS, moment
from lakecdc.sql import EXACT_JSON, canonical, exact_json, parsed_type, quoted_column, sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakecdc.contract.target import Target

_CORRUPT = "_corrupt"
_COLUMNS, _NUMBERS, _KEY = "columns_text", "numbers_text", "key_text"
# members of the JSON by the name of the column that takes their text
_TEXTS = {_COLUMNS: "columns", _NUMBERS: "numbers", _KEY: "key"}
_OF_EARLIER_RELEASE = (
    "an earlier release has kept less of it than a replay needs; a change of its row at the source brings it up to date"
)
_UNREADABLE = "it is not the JSON of a change; its row has to be read again at the source"
_OTHER_KEY = "it was kept when the rows had another key"
# rows of a table without a key have one order key if a full load has read them; their places tell the same ones apart
_TWIN = "CAST(regexp_extract(place, '#([0-9]+)$', 1) AS bigint)"
_TOLD_APART = (
    f"if(kept.op = 'r', concat(substr(order, 1, {EVENT_DIGITS}), "
    f"lpad(lower(hex({_TWIN} - 1)), {ARRIVAL_DIGITS}, '0')), order)"
)


@dataclass(frozen=True)
class TableNow:
    """A table that kept rows enter again.

    :param types: Spark SQL types of its columns by the source's names.
    :param key: its key columns by the source's names; empty if it has none.
    :param numbers: the source's columns as it has them, each with its number; empty if they are not known.
    :param infinity: option of the source: what its texts of infinite dates and times become.
    """

    types: Mapping[str, str]
    key: tuple[str, ...] = ()
    numbers: Mapping[str, int | None] | None = None
    infinity: str = "quarantine"


@dataclass(frozen=True, eq=False)
class _Shape:
    """What the rows of one state of the source's table have in common.

    :param columns: Spark SQL types by name.
    """

    columns_text: str
    numbers_text: str | None
    key_text: str
    columns: Mapping[str, str]
    numbers: Mapping[str, int]
    key: tuple[str, ...]

    @property
    def is_its(self) -> Expression:
        """Column condition: the row is of this shape."""
        texts = (self.columns_text, self.numbers_text, self.key_text)
        return reduce(and_, (F.col(name).eqNullSafe(F.lit(text)) for name, text in zip(_TEXTS, texts, strict=True)))

    def names(self, target: Target, now: TableNow) -> dict[str, str]:
        """Names that the columns have by now, by those that they had; without columns that are gone."""
        known = now.numbers or {}
        by_number = {number: name for name, number in known.items() if number is not None}
        found = {name: by_number[n] for name, n in self.numbers.items() if n in by_number and name in self.columns}
        taken = {*found.values(), *(name for name, n in self.numbers.items() if known.get(name, n) not in (n, None))}
        found |= {name: name for name in self.columns if name not in found and name not in taken}
        dropped = {name for name in found.values() if name not in known} if known else set()
        left_out = {*target.exclude_columns, *(dropped if target.on_dropped_column == "drop" else ())}
        return {name: new for name, new in found.items() if new not in left_out}


def kept_json(events: DataFrame, key: Sequence[str], numbers: Mapping[str, int | None] | None) -> Expression:
    """Return the JSON of events.

    :param events: rows of a change frame.
    :param key: names of the key columns.
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


def decode_kept(rows: DataFrame, target: Target, now: TableNow) -> Decoded:
    """Make events of kept rows, with the order keys they had.

    :param rows: ``changes.REJECTED``, as the quarantine has them.
    :return: the changes, persisted; the caller clears Spark's cache when the batch is done.
    """
    told = rows.select("*", *[text.alias(name) for name, text in zip(_TEXTS, _texts(), strict=True)])
    names = {shape: shape.names(target, now) for shape in _shapes(told)}
    types, chosen = dict(now.types), {name: chosen_type(target, name) for name in target.columns}
    for shape, of in names.items():
        for name, new in of.items():
            types[new] = stored_type(Column(new, shape.columns[name]), chosen.get(new), types.get(new))
    keys = {shape: tuple(of.get(name, name) for name in shape.key) for shape, of in names.items()}
    wanted = now.key or target.key
    key = next((k for k in keys.values() if not wanted or {*k} == {*wanted}), wanted)
    columns = tuple(Column(name, kind) for name, kind in types.items())
    frames, rest = [], told
    for shape in (shape for shape in names if {*keys[shape]} == {*key}):
        parsed = _finite(_parsed(told.where(shape.is_its), shape), shape, names[shape], types, now.infinity)
        frames.append(_typed(parsed, shape, names[shape], columns, key))
        rest = rest.where(~shape.is_its)
    rejected = [rest.withColumn("reason", _why_left()).select(*REJECTED)]
    changes, newest = None, None
    if frames:
        both = union(frames).persist()
        own = {"reason": F.col("problem"), "key": F.col("raw_key")}
        rejected.append(both.where("problem IS NOT NULL").withColumns(own).select(*REJECTED))
        changes = both.where("problem IS NULL")
        newest, accepted = changes.agg(F.max(F.unix_micros("source_time")), F.count("*")).collect()[0]
        changes = _with_deletes_of_moved_keys(changes) if accepted else None
    lost = union(rejected).localCheckpoint()
    rejections = lost.count()
    return Decoded(
        columns if changes is not None else tuple(Column(name, kind) for name, kind in now.types.items()),
        key,
        Rows(changes) if changes is not None else None,
        Rejected(lost, rejections) if rejections else None,
        newest=moment(newest) if newest is not None else None,
        events=rejections + (accepted if frames else 0),
    )


def _texts() -> list[Expression]:
    return [F.get_json_object(F.col("value").cast("string"), f"$.{name}") for name in _TEXTS.values()]


def _shapes(told: DataFrame) -> list[_Shape]:
    """Return the shapes that rows have, the newest first."""
    found = told.where(" AND ".join(f"{name} IS NOT NULL" for name in (_COLUMNS, _KEY)))
    found = found.groupBy(*_TEXTS).agg(F.max("order").alias("newest")).orderBy(F.desc("newest"))
    return [
        _Shape(row[0], row[1], row[2], _types(row[0]), json.loads(row[1] or "{}"), tuple(json.loads(row[2])))
        for row in found.collect()
    ]


def _types(columns_text: str) -> dict[str, str]:
    """Types as they are spelled now; those of an earlier release have the names of their members bare."""
    return {name: canonical(kind) for name, kind in json.loads(columns_text).items()}


def _why_left() -> Expression:
    is_ours = F.get_json_object(F.col("value").cast("string"), "$.op").isNotNull()
    return F.when(F.col(_KEY).isNotNull(), _OTHER_KEY).when(is_ours, _OF_EARLIER_RELEASE).otherwise(_UNREADABLE)


def _parsed(told: DataFrame, shape: _Shape) -> DataFrame:
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    kinds = {name: parsed_type(kind) for name, kind in shape.columns.items()}
    document = {
        "op": StringType(),
        "row": StructType([StructField(name, kind) for name, kind in kinds.items()]),
        "open": ArrayType(StringType()),
        "old_key": StructType([StructField(name, kinds[name]) for name in shape.key]),
        _CORRUPT: StringType(),
    }
    schema = StructType([StructField(name, kind) for name, kind in document.items()])
    options = {**EXACT_JSON, "columnNameOfCorruptRecord": _CORRUPT}
    return told.withColumn("kept", F.from_json(F.col("value").cast("string"), schema, options))


def _finite(
    parsed: DataFrame, shape: _Shape, names: Mapping[str, str], types: Mapping[str, str], infinity: str
) -> DataFrame:
    """Kept rows with what the source's option makes of texts that did not fit because they are infinite."""
    texts = {name: types[new] for name, new in names.items() if shape.columns[name] == "string"}
    if infinity == TableNow.infinity or not texts:
        return parsed
    found = F.col("kept")
    for struct, members in (("row", shape.columns), ("old_key", shape.key)):
        values = {name: F.col(f"kept.{struct}")[name] for name in members}
        values |= {name: _finite_text(values[name], texts[name], infinity) for name in members if name in texts}
        whole = F.struct(*[value.alias(name) for name, value in values.items()])
        found = found.withField(struct, F.when(F.col(f"kept.{struct}").isNotNull(), whole))
    return parsed.withColumn("kept", found)


def _finite_text(text: Expression, sql_type: str, infinity: str) -> Expression:
    """Replace the texts of infinite dates and times.

    :param infinity: ``null`` makes them null, ``bounds`` the outermost values of the type.
    """
    if sql_type not in OUTERMOST:
        return text
    low, high = OUTERMOST[sql_type] if infinity == "bounds" else (None, None)
    return F.when(text == "-infinity", F.lit(low)).when(text == "infinity", F.lit(high)).otherwise(text)


def _typed(
    parsed: DataFrame, shape: _Shape, names: Mapping[str, str], columns: Sequence[Column], key: Sequence[str]
) -> DataFrame:
    """Change events in the table's columns, with ``problem``: why one cannot enter, or null; and ``REJECTED``.

    :param names: those of the columns by now, by those that they had.
    """
    cells = {new: Column(name, shape.columns[name]) for name, new in names.items()}
    values = {c.name: value(cells[c.name], c.type) if c.name in cells else "NULL" for c in columns}
    checks = {c.name: _misfit(cells[c.name], c.type, values[c.name]) for c in columns if c.name in cells}
    types = {c.name: c.type for c in columns}
    row = F.struct(*[F.expr(values[c.name]).cast(c.type).alias(c.name) for c in columns])
    misfits = listed([F.when(F.expr(sql), F.lit(f"{name} ({types[name]})")) for name, sql in checks.items()])
    members = F.struct(*[F.expr(values[k]).cast(types[k]).alias(k) for k in key]) if key else no_key()
    frame = parsed.withColumn("cells", F.col("kept.row"))
    frame = frame.withColumns({"row": row, "misfits": misfits, "own": members})
    frame = frame.withColumn("cells", F.col("kept.old_key")).withColumn("was", members)
    has_no_key = reduce(or_, (F.col("own")[k].isNull() for k in key), F.lit(False))
    had_no_key = reduce(or_, (F.col("was")[k].isNull() for k in key), F.lit(False))
    broken = F.col(f"kept.{_CORRUPT}").isNotNull() | F.col("kept.op").isNull() | F.col("kept.row").isNull()
    problem = (
        F.when(broken, _UNREADABLE)
        .when(F.col("misfits") != "", F.concat(F.lit("values do not fit their columns: "), F.col("misfits")))
        .when(has_no_key, F.lit("no value for a key column"))
        .when(F.col("kept.old_key").isNotNull() & had_no_key, F.lit("the old key does not fit its columns"))
    )
    now = F.create_map(*[F.lit(x) for pair in names.items() for x in pair])
    opened = F.array_compact(F.transform("kept.open", lambda name: F.try_element_at(now, name)))
    return frame.select(
        *(c for c in REJECTED if c not in ("key", "order")),
        F.col("key").alias("raw_key"),
        F.col("kept.op").alias("op"),
        F.col("own").alias("key"),
        # of a delete, what was kept tells its key alone
        F.when((F.col("kept.op") != "d") | F.lit(not key), F.col("row")).alias("row"),
        F.when(F.size(opened) > 0, opened).alias("open"),
        F.when(F.col("kept.old_key").isNotNull(), F.col("was")).alias("old_key"),
        (F.col("order") if key else F.expr(_TOLD_APART)).alias("order"),
        problem.alias("problem"),
    )


def _misfit(cell: Column, sql_type: str, found: str) -> str:
    lost = f"(cells.{quoted_column(cell.name)} IS NOT NULL AND {found} IS NULL)"
    more = misfit(cell, sql_type, found)
    return f"({lost} OR {more})" if more else lost


def _with_deletes_of_moved_keys(changes: DataFrame) -> DataFrame:
    """Add the delete of the row under the old key to an update that changes the key."""
    events = changes.select("op", "key", "row", "open", "old_key", "order", "source_time")
    nothing = {name: F.lit(None).cast(events.schema[name].dataType) for name in ("row", "open", "old_key")}
    moved = events.where("old_key IS NOT NULL").withColumns({"op": F.lit("d"), "key": F.col("old_key")})
    return events.unionByName(moved.withColumns(nothing))
