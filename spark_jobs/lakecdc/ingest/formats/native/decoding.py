"""Messages of a format as SQL of DuckDB: messages in, a table of the engine's layout out.

What is the format's own stands in ``envelopes``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.native import sample
from lakecdc.ingest.formats.native.envelopes import find_envelope
from lakecdc.ingest.formats.native.envelopes.envelope import NO_TEXT
from lakecdc.ingest.formats.native.exact import (
    exact,
    json_literal,
    may_be_left_out,
    name_literal,
    text_literal,
    value,
)
from lakecdc.ingest.formats.native.layout import COUNTS
from lakecdc.ingest.formats.native.schemas import SchemaError, Wrapping, encoded, named_alike, outgrown, wrapping
from lakecdc.ingest.formats.values import placeholder_shapes
from lakecdc.ingest.order import LAST_TIME

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from lakecdc.ingest.formats.native.envelopes.envelope import Envelope
    from lakecdc.ingest.formats.values import Field

# messages among which the first one of the table is looked for
_LOOKED_AT = 1000
#: columns of a decoded table besides the layout's: why a message is not for this engine, the message if so, and its
#: source table
CHECKS = ("odd", "message", "source_table")


@dataclass(frozen=True)
class Decoding:
    """How the messages of one table are read.

    :param fields: all columns of the table.
    :param key: names of its key columns.
    :param table: the source table that is wanted, or its end.
    :param epoch: epoch of the source's identity.
    :param unavailable_value: Debezium's placeholder.
    :param ignored: columns of the source that the table leaves out.
    :param keyed: messages have keys, headers, topics and partitions, not values alone.
    :param format: the messages' format.
    :param order_by: member of the row that tells the order, if the format leaves that to the source's settings.
    :param wants: tells whether a source table is one of several that feed the table; None for one of them.
    :param source_column: column that takes the source table's name.
    :param encodings: those that the target declares, by column.
    :param told: columns of the schema of the messages, which have a ``payload`` beside their value; those that have
        none are odd. None if they carry no schema.
    :param texts: they have texts of their keys as well.
    :param routed: the source has chosen their topics for the table, so that one that is called like a source table
        stands for it.
    :param fixed: columns whose types the target declares.
    :param named: the target names its source table, so that case counts.
    :param only_added: rows of a format that tells no kind of change are added.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    table: str
    epoch: int
    unavailable_value: str
    ignored: tuple[str, ...] = ()
    keyed: bool = True
    format: str = "debezium-json"
    order_by: str | None = None
    wants: Callable[[str], bool] | None = None
    source_column: str | None = None
    encodings: Mapping[str, str] = field(default_factory=dict)
    told: tuple[Field, ...] | None = None
    texts: bool = False
    routed: bool = False
    fixed: tuple[str, ...] = ()
    named: bool = True
    only_added: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether a message may leave values out."""
        return any(map(self._may_be_left_out, self.fields))

    def wrapping(self, messages: pa.RecordBatch) -> Wrapping | None:
        """What is around the payloads of messages; None if they carry no schemas.

        :param messages: the first ones.
        """
        return wrapping(messages) if self._envelope.schemas and self.told is None else None

    def with_schema(self, told: tuple[Field, ...]) -> Decoding:
        """For messages that carry a schema.

        :param told: its columns.
        :raises SchemaError: they cannot be decoded by it.
        """
        changed = outgrown(self.fields, told, self.fixed)
        if changed:
            raise SchemaError(f"another type of the column {changed}")
        own = (self.source_column,) if self.source_column else ()
        fields = encoded(self.fields, told, self.key, self.ignored, self.encodings, own)
        return replace(self, fields=fields, told=told)

    def with_names(self, messages: pa.RecordBatch) -> Decoding:
        """For messages that tell what the numbers in their columns stand for.

        :param messages: the first ones.
        """
        if self._envelope.told is None:
            return self
        import pyarrow as pa

        # what is no UTF-8 is found out there
        values = messages.column("value").slice(0, _LOOKED_AT).cast(pa.binary()).to_pylist()
        told = sample.first_told(values, self.format, self._is_own)
        names = {f.name: f for f in told if f.names}
        fields = tuple(names[f.name].with_type(f.type) if f.name in names else f for f in self.fields)
        return replace(self, fields=fields)

    def _is_own(self, source_table: str) -> bool:
        """Whether a source table feeds the table by its name."""
        if self.wants is not None:
            return self.wants(source_table)
        name, end = f".{source_table}", f".{self.table}"
        return name.endswith(end) if self.named else name.lower().endswith(end.lower())

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the functions that the query needs."""
        if self.wants is not None:
            _create_test(connection, "wanted", self.wants)
        if self._envelope.told is not None:
            _create_test(connection, "held", self._holds)

    def _holds(self, told: str) -> bool:
        """Whether the columns can stay as they are with the types that a message tells."""
        try:
            types = json.loads(told)
            fields, doubted = self._envelope.fields_told(types), self._envelope.doubted(types)
        except NO_SCHEMA:
            return False
        if not {*doubted} <= {*self.fixed}:
            return False
        return outgrown(self.fields, fields, self.fixed) is None and named_alike(self.fields, fields)

    def first_columns(self, connection: duckdb.DuckDBPyConnection) -> tuple[str, ...] | None:
        """Columns of the first row image, in its order; None if there is none or one that the table does not have.

        :param connection: has the first messages as ``first``.
        """
        pointer, first = self._envelope.pointer, f"SELECT {self._value} AS text, 0 AS nth FROM first"
        images = f"SELECT json_keys(text, {pointer}) AS names FROM ({first})"
        row = connection.execute(f"SELECT names FROM ({images}) WHERE len(names) > 0 LIMIT 1").fetchone()
        names = tuple(row[0]) if row else ()
        all_known = {*self._envelope.columns(names)} <= self._known
        return names if names and all_known and len(set(names)) == len(names) else None

    @property
    def _envelope(self) -> Envelope:
        return find_envelope(self.format, self.order_by, only_added=self.only_added)

    @property
    def _columns(self) -> set[str]:
        """Columns of the table that the row image may have."""
        return set(self._envelope.columns(self._names))

    @property
    def _known(self) -> set[str]:
        return self._columns | set(self.ignored)

    def sql(self, seen: tuple[str, ...] | None = None, *, valid: bool = True, asides: bool = False) -> str:
        """The query over ``messages``: a table of the layout and :data:`CHECKS`; ``op`` of what is passed over is null.

        It has no condition: DuckDB would evaluate what a condition needs before all else, parsing each message again
        for every member that it refers to.

        :param seen: members of all row images, in their order, so that values are found by their places. Whatever is
            not so is ``odd``; without it, only what this engine cannot decode is.
        :param valid: all messages are JSON, else the query fails.
        :param asides: odd messages are wanted.
        """
        read = self._envelope
        strange, image = (
            (self._strange_places(seen), f"map_values({read.image})") if seen else (self._strange(), read.image)
        )
        members = "".join(f"{sql} AS {name_literal(name)}, " for name, sql in read.members.items())
        images = f"""SELECT * EXCLUDE (e), {members}{image} AS a, {read.before or self._no_key()} AS b,
            {strange} AS strange FROM ({self._parsed(seen, valid=valid, asides=asides)})"""
        if self._beside:
            beside = ", ".join(f"{self._member(name, seen)} AS {name_literal(to)}" for to, name in self._beside.items())
            images = f"SELECT *, {beside} FROM ({images})"
        named = f"SELECT *, coalesce(nullif({read.source_table}, ''), topic) AS source_table FROM ({images})"
        # each value is referred to several times, and DuckDB would search its place in the image each time
        texts = ", ".join(f"{self._text(name, seen)} AS x{i}" for i, name in enumerate(self._names))
        changes = self._changes(f"SELECT *, {self._kind()} AS kind, {texts} FROM ({named})", quick=seen is not None)
        message = "CASE WHEN odd IS NOT NULL THEN message END" if asides else "NULL"
        return f"SELECT * REPLACE ({message} AS message) FROM ({changes})"

    def _parsed(self, seen: tuple[str, ...] | None, *, valid: bool, asides: bool) -> str:
        """Messages in the format's shape, those with many rows once for each."""
        read, keys = self._envelope, dict.fromkeys(self.key, "VARCHAR")
        members = dict.fromkeys([*self._names, *self._beside.values()], "VARCHAR")
        shape = read.shape("MAP(VARCHAR, VARCHAR)" if seen else members, keys)
        messages = self._messages(valid=valid, asides=asides)
        parsed = f"SELECT *, from_json(text, {json_literal(shape)}) AS e FROM ({messages})"
        if not read.rows:
            return parsed
        # a message without rows still has to be judged
        rows = f"CASE WHEN len({read.rows}) > 0 THEN {read.rows} ELSE [NULL] END"
        return f"SELECT *, unnest(range(len({rows}))) AS nth, unnest({rows}) AS image FROM ({parsed})"

    @property
    def _beside(self) -> dict[str, str]:
        """Members of the row image that are no columns, by the names that SQL has for them."""
        prefix = self._envelope.old_prefix
        old = {f"w{i}": f"{prefix}{name}" for i, name in enumerate(self.key)} if prefix else {}
        return {**self._envelope.beside, **old}

    def _no_key(self) -> str:
        return "{" + ", ".join(f"{text_literal(name)}: NULL::VARCHAR" for name in self.key) + "}"

    def _text(self, name: str, seen: tuple[str, ...] | None) -> str:
        """A column's text."""
        if name == self.source_column:
            return "source_table"
        return self._member(name, seen) if name in self._columns else NO_TEXT

    @staticmethod
    def _member(name: str, seen: tuple[str, ...] | None) -> str:
        """A member's text in a row image."""
        if seen is None:
            return f"a.{name_literal(name)}"
        return f"a[{seen.index(name) + 1}]" if name in seen else "NULL::VARCHAR"

    @property
    def _names(self) -> list[str]:
        return [f.name for f in self.fields]

    def _strange_places(self, seen: tuple[str, ...]) -> str:
        names, read = ", ".join(text_literal(name) for name in seen), self._envelope
        told = f" OR map_keys({read.told}) != [{names}]" if read.told else ""
        return f"CASE WHEN map_keys({read.image}) != [{names}]{told} THEN 'other columns' {self._other_types()} END"

    def _other_types(self) -> str:
        """The case of a message that tells types which the columns do not hold as they are."""
        told = self._envelope.told
        return f"WHEN {told} IS NOT NULL AND NOT held(to_json({told})::VARCHAR) THEN 'other types'" if told else ""

    def _strange(self) -> str:
        """A column with a value that the table does not have yet."""
        read, names = self._envelope, f"json_keys(text, {self._envelope.pointer})"
        known = ", ".join(text_literal(name) for name in sorted(self._known | {*read.beside.values()}))
        place = f"{read.pointer} || '/' || replace(replace(n, '~', '~0'), '/', '~1')"
        has_value = f"coalesce(json_type(text, {place}), 'NULL') != 'NULL'"
        if read.old_prefix:
            is_old = f"starts_with(n, {text_literal(read.old_prefix)})"
            has_value += f" AND NOT ({is_old} AND list_contains({names}, substr(n, {len(read.old_prefix) + 1})))"
        new = f"list_filter({names}, n -> NOT list_contains([{known}], n) AND {has_value})"
        cases = [
            f"WHEN {read.image} IS NOT NULL AND NOT list_has_all([{known}], {names}) THEN 'a new column ' || {new}[1]"
        ]
        if read.by_hand:
            cases.append(f"WHEN list_unique({names}) < len({names}) THEN 'a member that comes twice'")
        if read.told:
            told = f"map_keys({read.told})"
            cases.append(
                f"WHEN NOT (list_has_all([{known}], {told}) AND list_has_all({told}, {names})) THEN 'other columns'"
            )
        return f"CASE {' '.join(cases)} {self._other_types()} END"

    def _messages(self, *, valid: bool, asides: bool) -> str:
        message = f"{'messages' if asides else 'NULL'} AS message"
        if not self.keyed:
            nothing = self._no_key()
            return f"""SELECT {_text(self._value, valid=valid)} AS text, arrival, false AS gone, {NO_TEXT} AS topic,
              '0' AS "partition", NULL::BIGINT AS stamped, {nothing} AS record_key, {nothing} AS moved,
              false AS has_moved, {message} FROM messages"""
        read = self._envelope
        header = 'list_filter(headers, h -> h."key" = \'__debezium.oldkey\')[1]."value"'
        old_key, has_moved = (f"decode({header})", f"{header} IS NOT NULL") if read.old_keys else (NO_TEXT, "false")
        keys = ('"key_text"', '"moved_text"') if self.texts else (read.record_key, old_key)
        texts = [_text(sql, valid=valid) for sql in (self._value, *keys)]
        stamped = 'epoch_us("timestamp")' if read.stamped else "NULL::BIGINT"
        shape = json_literal(self._key_shape)
        return f"""SELECT * REPLACE ({self._key_image("record_key")} AS record_key, {self._key_image("moved")} AS moved)
            FROM (SELECT * REPLACE (from_json(record_key, {shape}) AS record_key, from_json(moved, {shape}) AS moved)
            FROM (SELECT {texts[0]} AS text, arrival, "value" IS NULL AS gone, topic,
              concat_ws('/', topic, "partition") AS "partition", {stamped} AS stamped,
              {texts[1]} AS record_key, {texts[2]} AS moved, {has_moved} AS has_moved, {message} FROM messages))"""

    @property
    def _value(self) -> str:
        """SQL of a message's text, without its schema."""
        return '"payload"' if self.told is not None else 'decode("value")' if self.keyed else '"value"'

    @property
    def _wraps_keys(self) -> bool:
        """Whether keys may carry their schemas."""
        return self._envelope.schemas and not self.texts and not {"schema", "payload"} & {*self.key}

    @property
    def _key_shape(self) -> object:
        keys = dict.fromkeys(self.key, "VARCHAR")
        return {**keys, "schema": "VARCHAR", "payload": keys} if self._wraps_keys else keys

    def _key_image(self, name: str) -> str:
        """SQL of the texts of a key, out of what was parsed by its shape."""
        if not self._wraps_keys:
            return name
        own = ", ".join(f"{text_literal(key)}: {name}.{name_literal(key)}" for key in self.key)
        return (
            f"CASE WHEN {name}.schema IS NOT NULL AND {name}.payload IS NOT NULL THEN {name}.payload ELSE {{{own}}} END"
        )

    def _kind(self) -> str:
        """The op of a message that is this table's; ``odd`` for what the JVM has to judge; null to pass over."""
        # what tells no table is this one's; as ``source_tables.feeds`` decides
        if self.wants:
            return self._envelope.kind("(source_table IS NULL OR wanted(source_table))")
        end, stands = text_literal(f".{self.table}"), "ends_with('.' || topic, '.' || source_table)"
        if self.named:
            ours, stands = f"ends_with('.' || source_table, {end})", f"{stands} AND ends_with('.' || topic, {end})"
        else:
            ours = f"ends_with(lower('.' || source_table), lower({end}))"
        if self.routed:
            ours += f" OR ({stands})"
        return self._envelope.kind(f"coalesce({ours}, true)")

    def _changes(self, parsed: str, *, quick: bool) -> str:
        """Typed columns of parsed messages.

        :param parsed: with the text of each column in the row image, ``x0`` and so on.
        """
        texts = {name: f"x{i}" for i, name in enumerate(self._names)}
        keys, columns = range(len(self.key)), range(len(self.fields))
        counts = ", ".join(f"(op = '{count[-1]}')::INTEGER AS {count}" for count in COUNTS)
        listed = ", ".join(
            [
                *(f"k{i}" for i in keys),
                *(f"c{i}" for i in columns),
                f"{'NULL::VARCHAR[]' if quick else self._open(texts)} AS open",
                "has_moved AND has_row AS moved",
                *(f"CASE WHEN has_row THEN o{i} END AS o{i}" for i in keys),
            ]
        )
        said = " EXCLUDE (op)" if "op" in self._envelope.members else ""
        # of unsigned numbers these are the order and the digits
        position = "pos - 9223372036854775807 - 1" if self._envelope.turned else "pos"
        return f"""
          SELECT op, {listed}, CASE op WHEN 'x' THEN -1 ELSE {position} END AS pos, ord, rank::TINYINT AS rank,
            coalesce(time_us, 0) // 1000 AS time_ms, arrival, CASE WHEN op != 'x' THEN time_us END AS time_us,
            "partition", {counts}, {self._odd(texts, quick=quick)} AS odd, message,
            CASE WHEN op != 'x' THEN source_table END AS source_table
          FROM (SELECT *, {self._values(texts)} FROM (SELECT *{said} RENAME (kind AS op),
            kind NOT IN ('d', 'x') AS has_row, {self._key_texts(texts)} FROM ({parsed})))"""

    def _key_texts(self, texts: Mapping[str, str]) -> str:
        texts_of_key = [self._key_text(name, texts[name]) for name in self.key]
        return ", ".join(f"{text} AS t{place}" for place, text in enumerate(texts_of_key))

    def _key_text(self, name: str, text: str) -> str:
        if name == self.source_column:
            # so that a tombstone finds its delete, in a topic called like its table
            return f"CASE kind WHEN 'x' THEN regexp_extract(topic, '([^.]+[.])?[^.]+$') ELSE {text} END"
        return self._envelope.key(name_literal(name), text)

    def _moved_text(self, name: str) -> str:
        """A key column's text in the key that the row had before."""
        return "source_table" if name == self.source_column else f"moved.{name_literal(name)}"

    def _values(self, texts: Mapping[str, str]) -> str:
        read = self._envelope
        moved = [self._moved_text(name) for name in self.key]
        return ", ".join(
            [
                *(f"{value(self._field(name), f't{i}')} AS k{i}" for i, name in enumerate(self.key)),
                *(f"{value(f, texts[f.name], kind=self._json_type(f))} AS c{i}" for i, f in enumerate(self.fields)),
                *(f"{value(self._field(name), moved[i])} AS o{i}" for i, name in enumerate(self.key)),
                f"{read.position} AS pos",
                f"{read.ordinal} AS ord",
                f"{read.rank} AS rank",
                f"{read.time_us} AS time_us",
            ]
        )

    def _odd(self, texts: Mapping[str, str], *, quick: bool) -> str:
        """Why a message is not for this engine: what is no plain row event, no key, a value that is not exact."""
        cases = [
            *(["WHEN op = 'odd' AND text IS NULL THEN 'a message of another schema'"] if self.told is not None else []),
            "WHEN op = 'odd' AND text IS NULL THEN 'text that is no JSON'",
            "WHEN op = 'odd' THEN 'a message that is no plain row event'",
        ]
        for place, name in enumerate(self.key):
            field, moved = self._field(name), self._moved_text(name)
            fits = exact(field, f"t{place}", f"k{place}")
            cases.append(f"WHEN t{place} IS NULL OR NOT ({fits}) THEN {text_literal(f'the key column {name}')}")
            fits = exact(field, moved, f"o{place}")
            cases.append(f"WHEN has_moved AND ({moved} IS NULL OR NOT ({fits})) THEN 'an old key'")
        # a row's own key is the one that was looked at
        rest = [(i, f) for i, f in enumerate(self.fields) if f.name not in self.key]
        fitting = {f.name: self._fits(i, texts[f.name], quick=quick) for i, f in rest}
        for name, fits in fitting.items():
            reason = text_literal(f"a value of the column {name}")
            cases.append(f"WHEN has_row AND NOT ({fits}) THEN {reason}")
        bounds = f"least(pos, ord, arrival, coalesce(time_us, 0)) < 0 OR time_us > {LAST_TIME}999"
        cases.append(f"WHEN op != 'x' AND ({bounds}) THEN 'a position out of range'")
        before = [f"b.{name_literal(name)}" for name in self.key]
        if self._envelope.old_prefix:
            before = [f"coalesce({was}, w{place})" for place, was in enumerate(before)]
        changed = " OR ".join(f"{was} != t{place}" for place, was in enumerate(before))
        cases.append(f"WHEN op = 'u' AND ({changed}) THEN 'an update that changes the key'")
        cases += [f"WHEN {condition} THEN {text_literal(reason)}" for condition, reason in self._envelope.odd]
        cases.append("WHEN op != 'x' THEN strange")
        return "CASE WHEN op IS NULL THEN NULL " + " ".join(cases) + " END"

    def _fits(self, place: int, text: str, *, quick: bool) -> str:
        """SQL that is true if a column's text is null, a placeholder or an exact value."""
        field = self.fields[place]
        fits = exact(field, text, f"c{place}", kind=self._json_type(field))
        if not self._may_be_left_out(field):
            return f"{text} IS NULL OR ({fits})"
        unchanged = self._is_placeholder(field, text)
        return (
            f"{text} IS NULL OR (NOT ({unchanged}) AND ({fits}))"
            if quick
            else f"{text} IS NULL OR {unchanged} OR ({fits})"
        )

    def _json_type(self, field: Field) -> str:
        """SQL of the JSON type of a column's value, for the few values whose text does not tell it."""
        pointer = f"{self._envelope.pointer} || {text_literal('/' + _escaped(field.name))}"
        kind = f"json_type(text, {pointer})"
        if field.encoding != "variable_decimal":
            return kind
        # only one that is escaped can stand in a string
        escaped = r"""contains(text, '{\"') OR contains(text, '\u')"""
        return f"CASE WHEN {escaped} THEN {kind} ELSE 'OBJECT' END"

    def _open(self, texts: Mapping[str, str]) -> str:
        large = [f for f in self.fields if self._may_be_left_out(f)]
        if not large:
            return "NULL::VARCHAR[]"
        unchanged = {f.name: self._is_placeholder(f, texts[f.name]) for f in large}
        found = ", ".join(f"CASE WHEN {sql} THEN {text_literal(name)} END" for name, sql in unchanged.items())
        any_open = " OR ".join(f"coalesce({sql}, false)" for sql in unchanged.values())
        return f"CASE WHEN has_row AND ({any_open}) THEN list_filter([{found}], n -> n IS NOT NULL) END"

    def _may_be_left_out(self, field: Field) -> bool:
        return self._envelope.placeholders and may_be_left_out(field)

    def _is_placeholder(self, field: Field, text: str) -> str:
        # other arrays and objects are odd
        known = '{"scale"' if field.encoding == "variable_decimal" else "\0"
        shapes = placeholder_shapes(self.unavailable_value)
        listed = [text_literal(s) for s in shapes if s.startswith(known) or not s.startswith(("[", "{"))]
        return f"{text} IN ({', '.join(listed)})"

    def _field(self, name: str) -> Field:
        return next(f for f in self.fields if f.name == name)


def _escaped(name: str) -> str:
    """A name in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _text(sql: str, *, valid: bool) -> str:
    """SQL of a text in JSON; null for other text unless all is known to be JSON."""
    return sql if valid else f"CASE WHEN json_valid(TRY({sql})) THEN {sql} END"


def _create_test(connection: duckdb.DuckDBPyConnection, name: str, passes: Callable[[str], bool]) -> None:
    """Make a function of DuckDB that tests texts of which there are few different ones."""
    from duckdb.func import FunctionNullHandling, PythonUDFType

    # DuckDB would evaluate annotations
    connection.create_function(
        name,
        lambda texts: _each_once(texts, passes),
        ["VARCHAR"],
        "BOOLEAN",
        type=PythonUDFType.ARROW,
        null_handling=FunctionNullHandling.SPECIAL,
    )


def _each_once(texts: pa.ChunkedArray, passes: Callable[[str], bool]) -> pa.ChunkedArray:
    """Tell of texts, few of which are different, whether they pass a test."""
    import pyarrow as pa
    import pyarrow.compute as pc

    passing = [text for text in pc.unique(texts).to_pylist() if text is not None and passes(text)]
    return pc.is_in(texts, value_set=pa.array(passing, pa.string()))
