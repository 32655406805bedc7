"""Messages of a format as SQL of DuckDB: messages in, a table of the engine's layout out.

What is the format's own stands in ``envelopes``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.native.envelopes import find_envelope
from lakecdc.ingest.formats.native.exact import (
    exact,
    json_literal,
    may_be_left_out,
    name_literal,
    text_literal,
    value,
)
from lakecdc.ingest.formats.native.layout import COUNTS
from lakecdc.ingest.formats.values import placeholder_shapes

if TYPE_CHECKING:
    import duckdb

    from lakecdc.ingest.formats.native.envelopes.envelope import Envelope
    from lakecdc.ingest.formats.values import Field

#: columns of a decoded table besides the layout's: why a message is not for this engine, the message if so, and its
#: source table
CHECKS = ("odd", "message", "source_table")
# the parts of an order key have 16 digits, its time has 12
_LARGEST_TIME = 2**48


@dataclass(frozen=True)
class Decoding:
    """How the messages of one table are read.

    :param fields: all columns of the table.
    :param key: names of its key columns.
    :param table: the source table that is wanted, or its end; None takes all there are.
    :param epoch: epoch of the source's identity.
    :param unavailable_value: Debezium's placeholder.
    :param ignored: columns of the source that the table leaves out.
    :param keyed: messages have keys, headers, topics and partitions, not values alone.
    :param format: the messages' format.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    table: str | None
    epoch: int
    unavailable_value: str
    ignored: tuple[str, ...] = ()
    keyed: bool = True
    format: str = "debezium-json"

    def first_columns(self, connection: duckdb.DuckDBPyConnection) -> tuple[str, ...] | None:
        """Columns of the first row image, in its order; None if there is none or one that the table does not have.

        :param connection: has the first messages as ``first``.
        """
        text = 'decode("value")' if self.keyed else '"value"'
        images = f"SELECT json_keys(text, {self._envelope.pointer}) AS names FROM (SELECT {text} AS text FROM first)"
        row = connection.execute(f"SELECT names FROM ({images}) WHERE len(names) > 0 LIMIT 1").fetchone()
        names = tuple(row[0]) if row else ()
        return names if names and set(names) <= self._known and len(set(names)) == len(names) else None

    @property
    def _envelope(self) -> Envelope:
        return find_envelope(self.format)

    @property
    def _known(self) -> set[str]:
        return {f.name for f in self.fields} | set(self.ignored)

    def sql(self, seen: tuple[str, ...] | None = None, *, valid: bool = True, asides: bool = False) -> str:
        """The query over ``messages``: a table of the layout and :data:`CHECKS`; ``op`` of what is passed over is null.

        It has no condition: DuckDB would evaluate what a condition needs before all else, parsing each message again
        for every member that it refers to.

        :param seen: columns of all row images, in their order, so that values are found by their places. Whatever is
            not so is ``odd``; without it, only what this engine cannot decode is.
        :param valid: all messages are JSON, else the query fails.
        :param asides: odd messages are wanted.
        """
        read, keys = self._envelope, dict.fromkeys(self.key, "VARCHAR")
        row_image = "MAP(VARCHAR, VARCHAR)" if seen else dict.fromkeys(self._names, "VARCHAR")
        members = ", ".join(f"{sql} AS {name_literal(name)}" for name, sql in read.members.items())
        strange, image = (
            (self._strange_places(seen), f"map_values({read.image})") if seen else (self._strange(), read.image)
        )
        images = f"""SELECT * EXCLUDE (e), {members}, {image} AS a, {read.before} AS b,
                {read.source_table} AS source_table, {strange} AS strange
              FROM (SELECT *, from_json(text, {json_literal(read.shape(row_image, keys))}) AS e
                FROM ({self._messages(json_literal(keys), valid=valid, asides=asides)}))"""
        # each value is referred to several times, and DuckDB would search its place in the image each time
        texts = ", ".join(f"{self._text(name, seen)} AS x{i}" for i, name in enumerate(self._names))
        changes = self._changes(f"SELECT *, {self._kind()} AS kind, {texts} FROM ({images})", quick=seen is not None)
        message = "CASE WHEN odd IS NOT NULL THEN message END" if asides else "NULL"
        return f"SELECT * REPLACE ({message} AS message) FROM ({changes})"

    @staticmethod
    def _text(name: str, seen: tuple[str, ...] | None) -> str:
        """A column's text in a row image."""
        if seen is None:
            return f"a.{name_literal(name)}"
        return f"a[{seen.index(name) + 1}]" if name in seen else "NULL::VARCHAR"

    @property
    def _names(self) -> list[str]:
        return [f.name for f in self.fields]

    def _strange_places(self, seen: tuple[str, ...]) -> str:
        names = ", ".join(text_literal(name) for name in seen)
        return f"CASE WHEN map_keys({self._envelope.image}) != [{names}] THEN 'other columns' END"

    def _strange(self) -> str:
        """A column with a value that the table does not have yet."""
        known = ", ".join(text_literal(name) for name in sorted(self._known))
        image, pointer = self._envelope.image, self._envelope.pointer
        place = f"{pointer} || '/' || replace(replace(n, '~', '~0'), '/', '~1')"
        has_value = f"coalesce(json_type(text, {place}), 'NULL') != 'NULL'"
        new = f"list_filter(json_keys(text, {pointer}), n -> NOT list_contains([{known}], n) AND {has_value})"
        return (
            f"CASE WHEN {image} IS NOT NULL AND NOT list_has_all([{known}], json_keys(text, {pointer})) "
            f"THEN 'a new column ' || {new}[1] END"
        )

    def _messages(self, keys: str, *, valid: bool, asides: bool) -> str:
        message = f"{'messages' if asides else 'NULL'} AS message"
        if not self.keyed:
            nothing = ", ".join(f"{text_literal(name)}: NULL::VARCHAR" for name in self.key)
            return f"""SELECT {_text('"value"', valid=valid)} AS text, arrival, false AS gone, '0' AS "partition",
              {{{nothing}}} AS record_key, {{{nothing}}} AS moved, false AS has_moved, {message} FROM messages"""
        header = 'list_filter(headers, h -> h."key" = \'__debezium.oldkey\')[1]."value"'
        texts = [_text(f"decode({raw})", valid=valid) for raw in ('"value"', '"key"', header)]
        return f"""SELECT text, arrival, gone, "partition", from_json(record_key, {keys}) AS record_key,
              from_json(moved, {keys}) AS moved, has_moved, message
            FROM (SELECT {texts[0]} AS text, arrival, "value" IS NULL AS gone, {texts[1]} AS record_key,
              {texts[2]} AS moved, {header} IS NOT NULL AS has_moved, concat_ws('/', topic, "partition") AS "partition",
              {message} FROM messages)"""

    def _kind(self) -> str:
        """The op of a message that is this table's; ``odd`` for what the JVM has to judge; null to pass over."""
        mine = f"ends_with('.' || source_table, {text_literal(f'.{self.table}')})" if self.table else "true"
        return self._envelope.kind(mine)

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
        return f"""
          SELECT op, {listed}, CASE op WHEN 'x' THEN -1 ELSE pos END AS pos, ord, rank::TINYINT AS rank,
            coalesce(time_us, 0) // 1000 AS time_ms, arrival, CASE WHEN op != 'x' THEN time_us END AS time_us,
            "partition", {counts}, {self._odd(texts, quick=quick)} AS odd, message,
            CASE WHEN op != 'x' THEN source_table END AS source_table
          FROM (SELECT *, {self._values(texts)} FROM (SELECT * EXCLUDE (op) RENAME (kind AS op),
            kind NOT IN ('d', 'x') AS has_row, {self._key_texts(texts)} FROM ({parsed})))"""

    def _key_texts(self, texts: Mapping[str, str]) -> str:
        texts_of_key = [self._envelope.key(name_literal(name), texts[name]) for name in self.key]
        return ", ".join(f"{text} AS t{place}" for place, text in enumerate(texts_of_key))

    def _values(self, texts: Mapping[str, str]) -> str:
        read = self._envelope
        moved = [f"moved.{name_literal(name)}" for name in self.key]
        return ", ".join(
            [
                *(f"{value(self._field(name), f't{i}')} AS k{i}" for i, name in enumerate(self.key)),
                *(f"{value(f, texts[f.name])} AS c{i}" for i, f in enumerate(self.fields)),
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
            "WHEN op = 'odd' AND text IS NULL THEN 'text that is no JSON'",
            "WHEN op = 'odd' THEN 'a message that is no plain row event'",
        ]
        for place, name in enumerate(self.key):
            field, moved = self._field(name), f"moved.{name_literal(name)}"
            fits = exact(field, f"t{place}", made=f"k{place}")
            cases.append(f"WHEN t{place} IS NULL OR NOT ({fits}) THEN {text_literal(f'the key column {name}')}")
            fits = exact(field, moved, made=f"o{place}")
            cases.append(f"WHEN has_moved AND ({moved} IS NULL OR NOT ({fits})) THEN 'an old key'")
        # a row's own key is the one that was looked at
        rest = [(i, f) for i, f in enumerate(self.fields) if f.name not in self.key]
        fitting = {f.name: self._fits(i, texts[f.name], quick=quick) for i, f in rest}
        for name, fits in fitting.items():
            reason = text_literal(f"a value of the column {name}")
            cases.append(f"WHEN has_row AND NOT ({fits}) THEN {reason}")
        bounds = f"least(pos, ord, arrival, coalesce(time_us, 0)) < 0 OR time_us >= {_LARGEST_TIME}000"
        cases.append(f"WHEN op != 'x' AND ({bounds}) THEN 'a position out of range'")
        changed = " OR ".join(f"b.{name_literal(name)} != t{place}" for place, name in enumerate(self.key))
        cases.append(f"WHEN op = 'u' AND ({changed}) THEN 'an update that changes the key'")
        cases.append("WHEN has_row THEN strange")
        cases += [f"WHEN {condition} THEN {text_literal(reason)}" for condition, reason in self._envelope.odd]
        return "CASE WHEN op IS NULL THEN NULL " + " ".join(cases) + " END"

    def _fits(self, place: int, text: str, *, quick: bool) -> str:
        """SQL that is true if a column's text is null, a placeholder or an exact value."""
        field = self.fields[place]
        pointer = f"{self._envelope.pointer} || {text_literal('/' + _escaped(field.name))}"
        kind = None if quick else f"json_type(text, {pointer})"
        fits = exact(field, text, kind=kind, made=f"c{place}")
        if not may_be_left_out(field):
            return f"{text} IS NULL OR ({fits})"
        unchanged = self._is_placeholder(text)
        return (
            f"{text} IS NULL OR (NOT ({unchanged}) AND ({fits}))"
            if quick
            else f"{text} IS NULL OR {unchanged} OR ({fits})"
        )

    def _open(self, texts: Mapping[str, str]) -> str:
        large = [f.name for f in self.fields if may_be_left_out(f)]
        if not large:
            return "NULL::VARCHAR[]"
        unchanged = {name: self._is_placeholder(texts[name]) for name in large}
        found = ", ".join(f"CASE WHEN {sql} THEN {text_literal(name)} END" for name, sql in unchanged.items())
        any_open = " OR ".join(f"coalesce({sql}, false)" for sql in unchanged.values())
        return f"CASE WHEN {any_open} THEN list_filter([{found}], n -> n IS NOT NULL) END"

    def _is_placeholder(self, text: str) -> str:
        # its structured shapes are arrays and objects, which are odd
        shapes = [s for s in placeholder_shapes(self.unavailable_value) if not s.startswith(("[", "{"))]
        return f"{text} IN ({', '.join(text_literal(s) for s in shapes)})"

    def _field(self, name: str) -> Field:
        return next(f for f in self.fields if f.name == name)


def _escaped(name: str) -> str:
    """A name in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _text(sql: str, *, valid: bool) -> str:
    """SQL of a text in JSON; null for other text unless all is known to be JSON."""
    return sql if valid else f"CASE WHEN json_valid(TRY({sql})) THEN {sql} END"
