"""Read Debezium events with the same members as msgspec structs, at half the cost of reading each by itself.

The first event of a table defines the shape: its members, in order. Events of another shape or with a duplicate member
are not read here; :mod:`lakecdc.ingest.envelopes.debezium` interprets events.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from lakecdc.ingest.engine.layout import Places
from lakecdc.ingest.envelopes import debezium
from lakecdc.ingest.envelopes.json_values import NOT_DECODED, TOGETHER, Object, Texts, decoder
from lakecdc.ingest.envelopes.message import HIGHEST

# members of the source that all events of a table share
_SHARED = ("connector", "db", "schema", "table")
# microseconds by unit, and the highest numbers that 63 bits of microseconds hold
_TIMES = {"ts_us": 1, "ts_ms": 1000}
_BOUNDS = {"lsn": HIGHEST, **{name: HIGHEST // micros for name, micros in _TIMES.items()}}
_TEXTS, _TEXT = ("sequence", "snapshot"), (str, type(None))
# characters that msgspec refuses in names
_NO_NAME = re.compile(r'[\x00-\x1f"\\]')


def _are_names(names: Iterable[str]) -> bool:
    """Check that all names can be field names of msgspec."""
    return _NO_NAME.search("".join(names)) is None


class Members:
    """A struct type with a field for each member of a sample, in its order.

    :param kinds: msgspec types by member; other members have values of any type.
    :param missing: members that the sample lacks; their value is None, and an object that has one is refused.
    :ivar struct: type with a field for each member; refuses objects with other members.
    :ivar fields: names of the fields, by member.
    :ivar nothing: a struct without values.
    """

    def __init__(self, sample: Mapping[str, Any], kinds: Mapping[str, Any], missing: Iterable[str] = ()) -> None:
        self.fields = {name: f"f{place}" for place, name in enumerate((*sample, *missing))}
        fields = [
            (field, kinds.get(name, Any), *(() if name in sample else (None,))) for name, field in self.fields.items()
        ]
        renamed = {field: name for name, field in self.fields.items()}
        self.struct: Any = msgspec.defstruct(
            "Members", fields, rename=renamed, forbid_unknown_fields=True, kw_only=True, gc=False
        )
        self.count, self.nothing = len(sample), self.struct(**dict.fromkeys(renamed))
        self._objects = [self.fields[n] for n, value in sample.items() if n not in kinds and isinstance(value, dict)]

    def values(self, name: str, structs: Iterable[Any]) -> list[Any]:
        """Return the values of a member; None where objects lack it."""
        field = self.fields.get(name)
        return [None for _ in structs] if field is None else list(map(attrgetter(field), structs))

    def columns(self, structs: Iterable[Any]) -> dict[str, Sequence[Any]]:
        """Return the values of all members of structs, by member."""
        values = zip(*map(msgspec.structs.astuple, structs), strict=True)
        return dict(zip(self.fields, values, strict=True))

    def counts_within(self, structs: Sequence[Any]) -> Iterator[list[int]]:
        """Yield the number of members in the objects that are a member's values; 0 for other values."""
        for field in self._objects:
            values = (getattr(struct, field, None) for struct in structs)
            yield [len(value) if type(value) is dict else 0 for value in values]


def can_be_alike(event: Object) -> bool:
    """Check that an event can define the shape: it has a row, a source table and valid struct names."""
    source, after = event.get("source"), event.get("after")
    if debezium.unwrapped(event) is not event or type(source) is not dict or type(after) is not dict:
        return False
    is_shared = all(type(source.get(name)) in _TEXT for name in _SHARED)
    is_row = event.get("op") in debezium.ROW_OPS and debezium.source_table(source) != ""
    return is_shared and is_row and all(map(_are_names, (event, source, after)))


def _source_kind(name: str, value: Any) -> Any:
    """Return the type of a member of the source; a shared member has one value."""
    if value is None:
        return None
    if name in _SHARED:
        return Literal[value]
    if name in _BOUNDS and type(value) is int:
        return Annotated[int, msgspec.Meta(ge=0, le=_BOUNDS[name])]
    return str if name in _TEXTS and type(value) is str else Any


def _time_beside_lsn(source: Object) -> str | None:
    """Return the member with the time of an event whose place is an LSN, as in Postgres; None for other events."""
    is_lsn = type(source.get("lsn")) is int and source.get("connector") not in debezium.BINLOG
    if not is_lsn or any(type(source.get(name)) not in _TEXT for name in _TEXTS):
        return None
    name = next((name for name in _TIMES if source.get(name) is not None), "")
    return name if type(source.get(name)) is int else None


class Shape:
    """Structs for events of one table with the same members.

    :param event: parsed event with a row after the change.
    :param before: the row before a change; None if unknown.
    :param known: columns that may have values.
    :ivar place_members: members of the source that define an event's place.
    """

    def __init__(self, event: Object, before: Object | None, known: Iterable[str]) -> None:
        source, after = event["source"], event["after"]
        self.source_table = debezium.source_table(source)
        self.source = Members(source, {name: _source_kind(name, value) for name, value in source.items()})
        self.after = Members(after, {name: None for name in after if name not in known})
        before = before if before and _are_names(before) else None
        self.before = Members(before or {}, {})
        kinds = {
            "op": Literal[debezium.ROW_OPS],
            "source": self.source.struct,
            "after": self.after.struct | None,
            "before": None if before is None else self.before.struct | None,
        }
        self._event = Members(event, kinds, (name for name in ("after", "before") if name not in event))
        self._decode = decoder(self._event.struct).decode
        # None if places are read one by one
        self._time = _time_beside_lsn(source)
        beside = ("lsn", *_TEXTS, self._time)
        self.place_members = [name for name in source if self._time is None or name in beside]

    def read(self, texts: Texts, places: Sequence[int]) -> list[Sequence[Any]]:
        """Read the events with these members: the places of their messages, ops, sources, rows, rows before.

        :param places: places of messages within :data:`TOGETHER`.
        """
        decode, events, odd = self._decode, list[Any](), set[int]()
        add, all_texts = events.append, texts.texts
        for place in places:
            try:
                add(decode(all_texts[place] or b""))
            except NOT_DECODED:
                odd.add(place)
        decoded = [place for place in places if place not in odd] if odd else places
        ops, sources, afters, befores = (self._event.values(n, events) for n in ("op", "source", "after", "before"))
        parts: list[Sequence[Any]] = [decoded, ops, sources, afters, befores]
        counts = self._counts(events, afters, befores)
        start = places[0] - places[0] % TOGETHER
        # only deletes have no row after the change
        fits = [(op == "d") is (after is None) for op, after in zip(ops, afters, strict=True)]
        is_whole = len(events) == len(all_texts[start : start + TOGETHER])
        if is_whole and all(fits) and sum(counts) == texts.members_together(start):
            return parts
        each = zip(decoded, counts, fits, strict=True)
        stays = [fit and count == texts.members(place) for place, count, fit in each]
        return [list(compress(part, stays)) for part in parts]

    def _counts(self, events: Sequence[Any], afters: Sequence[Any], befores: Sequence[Any]) -> list[int]:
        counts = [self._event.count + self.source.count] * len(events)
        for members, images in ((self.after, afters), (self.before, befores)):
            counts = [count if i is None else count + members.count for count, i in zip(counts, images, strict=True)]
        for members, structs in ((self._event, events), (self.after, afters), (self.before, befores)):
            for within in members.counts_within(structs):
                counts = [count + more for count, more in zip(counts, within, strict=True)]
        return counts

    def places(self, ops: Sequence[str], sources: Mapping[str, Sequence[Any]]) -> Places:
        """Return the places of events, from members of their sources."""
        if not ops or self._time is None:
            rows = (dict(zip(sources, values, strict=True)) for values in zip(*sources.values(), strict=True))
            return Places.of([debezium.place(source, op) for source, op in zip(rows, ops, strict=True)])
        times = pa.array(np.array(sources[self._time], np.int64) * _TIMES[self._time])
        sequences, snapshots = (sources.get(name, [None] * len(ops)) for name in _TEXTS)
        is_read = {snapshot: debezium.is_snapshot(snapshot) for snapshot in {*snapshots}}
        reads = [op == "r" or is_read[snapshot] for op, snapshot in zip(ops, snapshots, strict=True)]
        return Places.of_lsns(sources["lsn"], None if sequences[0] is None else sequences, reads, times)


class Alike:
    """Events of one shape, as columns.

    :ivar messages: places of their messages.
    :ivar rows: values of the rows by column; None for deletes.
    :ivar keys: values of the key columns; for deletes from the row before.
    :ivar befores: former key values of updated rows.
    """

    def __init__(self, shape: Shape, names: Iterable[str], key: Iterable[str]) -> None:
        self._shape = shape
        self.messages: list[int] = []
        self.ops: list[str] = []
        self.rows: dict[str, list[Any]] = {name: [] for name in names}
        self.keys: dict[str, list[Any]] = {name: [] for name in key}
        self.befores: dict[str, list[Any]] = {name: [] for name in key}
        self._sources: dict[str, list[Any]] = {name: [] for name in shape.place_members}

    def places(self) -> Places:
        return self._shape.places(self.ops, self._sources)

    def read(self, texts: Texts, candidates: Sequence[int]) -> None:
        """Add the events of some messages."""
        begin = 0
        while begin < len(candidates):
            end = bisect_left(candidates, candidates[begin] // TOGETHER * TOGETHER + TOGETHER, begin)
            self._take(*self._shape.read(texts, candidates[begin:end]))
            begin = end

    def _take(
        self,
        places: Sequence[int],
        ops: Sequence[str],
        sources: Sequence[Any],
        afters: Sequence[Any],
        befores: Sequence[Any],
    ) -> None:
        if not places:
            return
        shape, none = self._shape, [None] * len(places)
        self.messages += places
        self.ops += ops
        for name, column in self._sources.items():
            column += shape.source.values(name, sources)
        rows = shape.after.columns(row or shape.after.nothing for row in afters)
        for name, column in self.rows.items():
            column += rows.get(name, none)
        was = [row or shape.before.nothing for row in befores]
        for name, column in self.keys.items():
            olds = shape.before.values(name, was)
            news = rows.get(name, none)
            column += [old if op == "d" else new for op, new, old in zip(ops, news, olds, strict=True)]
            self.befores[name] += [old if op == "u" else None for op, old in zip(ops, olds, strict=True)]
