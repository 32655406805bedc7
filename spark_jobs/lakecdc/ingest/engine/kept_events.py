"""Make events of kept rows in tasks, in plain Python; ``kept_rows`` tells what their JSON has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa

from lakecdc.contract.target import Target
from lakecdc.ingest.change import Column
from lakecdc.ingest.envelopes.json_values import Object, UnreadableError, parse_each, parse_json
from lakecdc.ingest.formats.text_columns import OUTERMOST
from lakecdc.model.columns import DECIMAL, MICROSECONDS_OF_A_DAY, ColumnType, Parser, arrow_type, parse_number
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS
from lakecdc.model.tokens import MisfitError, Nested, as_token, to_text
from lakecdc.runtime.worker import settle

_OF_EARLIER_RELEASE = (
    "an earlier release has kept less of it than a replay needs; a change of its row at the source brings it up to date"
)
_UNREADABLE = "it is not the JSON of a change; its row has to be read again at the source"
_OTHER_KEY = "it was kept when the rows had another key"
# a year that is kept with a sign, or is 0; after 400 years the calendar begins anew
_ANY_YEAR = re.compile(r"([+-][0-9]{4,6}|0000)(-.+)")
_DAYS_OF_CYCLE = 146_097
# rows of a table without a key have one order key if a full load has read them; their places tell the same ones apart
_TWIN = re.compile(r".*#([0-9]+)", re.DOTALL)


class StaysError(ValueError):
    """Raised for a kept row that cannot be applied and stays in the quarantine."""


@dataclass(frozen=True)
class Shape:
    """Columns and key that kept rows share, those of one state of the source's table.

    :param numbers: of the source's columns by name, which they keep when they are renamed.
    """

    columns: Mapping[str, str]
    numbers: Mapping[str, int]
    key: tuple[str, ...]

    def names(self, target: Target, known: Mapping[str, int | None]) -> dict[str, str]:
        """Return the present names of the columns by their former ones, without columns that are gone.

        :param known: present numbers of the source's columns; empty if they are not known.
        """
        by_number = {number: name for name, number in known.items() if number is not None}
        found = {name: by_number[n] for name, n in self.numbers.items() if n in by_number and name in self.columns}
        taken = {*found.values(), *(name for name, n in self.numbers.items() if known.get(name, n) not in (n, None))}
        found |= {name: name for name in self.columns if name not in found and name not in taken}
        dropped = {name for name in found.values() if name not in known} if known else set()
        left_out = {*target.exclude_columns, *(dropped if target.on_dropped_column == "drop" else ())}
        return {name: new for name, new in found.items() if new not in left_out}


def shape_text(document: Any) -> str | None:
    """Return the shape that the parsed JSON of a kept row tells, as text; None if it does not tell enough."""
    told = [document.get(name) for name in ("columns", "numbers", "key")] if type(document) is dict else [None]
    return to_text(told) if type(told[0]) is dict and type(told[-1]) is list else None


@dataclass(frozen=True)
class DecodeKept:
    """Task that adds to kept rows the ``event`` that each of them is, with the ``problem`` of one that cannot enter.

    Values of types that Arrow has no parser for are left as JSON.

    :param kept: by the shape's text: the kept columns by their present names.
    :param infinity: option of the source: what texts of infinite dates and times become.
    """

    types: Mapping[str, str]
    key: tuple[str, ...]
    kept: Mapping[str | None, Mapping[str, Column]]
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
        """Return the event of a kept row's parsed JSON, its dates and times as Arrow stores them.

        :raises StaysError: it cannot enter.
        """
        kept, op = self.kept.get(shape_text(document)), document.get("op") if type(document) is dict else None
        if kept is None and op is not None:
            raise StaysError(_OF_EARLIER_RELEASE if document.get("key") is None else _OTHER_KEY)
        if kept is None or type(op) is not str:
            raise StaysError(_UNREADABLE)
        row, misfits = self._typed(document.get("row"), self.types, kept)
        if misfits:
            raise StaysError(f"values do not fit their columns: {', '.join(misfits)}")
        key, old_key = {name: row[name] for name in self.key}, None
        if None in key.values():
            raise StaysError("no value for a key column")
        if document.get("old_key") is not None:
            old_key, _ = self._typed(document["old_key"], self.key, kept)
            if None in old_key.values():
                raise StaysError("the old key does not fit its columns")
        told = document.get("open")
        opened = [name for name, own in kept.items() if type(told) is list and own.name in told]
        twin = _TWIN.fullmatch(place) if op == "r" and not key else None
        if twin:
            order = f"{order[:EVENT_DIGITS]}{int(twin[1]) - 1:0{ARRIVAL_DIGITS}x}"
        # of a delete, what was kept tells its key alone
        image = None if op == "d" and key else row
        return {"op": op, "key": key, "row": image, "open": opened or None, "old_key": old_key, "order": order}

    def _typed(self, image: Any, names: Iterable[str], kept: Mapping[str, Column]) -> tuple[Object, list[str]]:
        """Return values of an image by column, and the columns that cannot take theirs.

        :raises StaysError: it is not an image of the kept columns.
        """
        if type(image) is not dict:
            raise StaysError(_UNREADABLE)
        values, misfits = dict.fromkeys(names), list[str]()
        for name, own in ((name, kept[name]) for name in values if name in kept):
            kind = self.types[name]
            try:
                values[name] = find_parser(own.type, kind, self.infinity)(as_token(image.get(own.name)))
            except MisfitError:
                if own.type == kind:
                    raise StaysError(_UNREADABLE) from None
                misfits.append(f"{name} ({kind})")
        return values, misfits


@cache
def find_parser(kept_type: str, sql_type: str, infinity: str = "quarantine") -> Parser:
    """Return the parser of kept values for a column: as of sources, but for what Spark writes in another way."""
    if arrow_type(sql_type) is None:
        return partial(_json_text, is_text=kept_type == "string")
    parse = ColumnType(sql_type).parser()
    if kept_type == "string" and sql_type in OUTERMOST and infinity != "quarantine":
        low, high = OUTERMOST[sql_type] if infinity == "bounds" else (None, None)
        return lambda value: parse({"-infinity": low, "infinity": high}.get(value, value))
    if kept_type == sql_type and sql_type in OUTERMOST:
        return partial(_any_year, parse, 1 if sql_type == "date" else MICROSECONDS_OF_A_DAY)
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


def _any_year(parse: Parser, day: int, value: Any) -> Any:
    """Parse a date or moment of any year, given the length of a day in Arrow's unit."""
    match = _ANY_YEAR.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return parse(value)
    cycles, year = divmod(int(match[1]) - 2000, 400)
    number = parse(f"{2000 + year}{match[2]}") + cycles * _DAYS_OF_CYCLE * day
    if not -(1 << 63) <= number < 1 << 63:
        raise MisfitError("no type holds it")
    return number
