"""Source positions in snapshot summaries and properties, and the link of a history table to its table's position."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.metadata import names
from lakecdc.metadata.names import SIDE_OF

#: every retained summary is part of metadata.json, so positions must stay small (bytes)
MAX_BYTES = 8 * 1024


@dataclass(frozen=True)
class Position:
    """A table's position in its source.

    :param source: type of the source, such as ``postgres``.
    :param identity: distinguishes sources of the same type; an unknown identity stops the run.
    :param offsets: the source's own coordinates, JSON.
    :param read_through: time at the source, ISO-8601 UTC, up to which every change is in the table.
    :param high_order: the highest order key applied; an event above it needs no look-up.
    :param truncate_order: order key of the last TRUNCATE applied; an event below it is too late.
    :param storage: state that the source compares with its table, to notice changes without events; not part of the
        position itself.
    :param feed: name of its feed, if several jobs feed the table.
    :param others: the positions of the table's other feeds, as JSON by feed, see :func:`beside_others`.
    """

    source: str
    identity: str
    offsets: dict[str, Any] = field(default_factory=dict)
    read_through: str | None = None
    high_order: str | None = None
    truncate_order: str | None = None
    storage: dict[str, Any] | None = None
    feed: str = field(default="", compare=False)
    others: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def table_through(self) -> str | None:
        """Return the time up to which the table has every change of all its feeds; None if it is unknown for one."""
        return _lowest([self.read_through, *(other["position"].get("read_through") for other in self.others.values())])

    def encode(self) -> str:
        """Encode the position as summary text, equal for equal positions.

        :raises InputError: it does not fit into a summary.
        """
        document: dict[str, Any] = {"source": self.source, "identity": self.identity, "offsets": self.offsets}
        optional = ("read_through", "high_order", "truncate_order", "storage", "feed", "others")
        document |= {name: value for name in optional if (value := getattr(self, name))}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        if len(text.encode()) > MAX_BYTES:
            raise InputError(
                f"The source positions take {len(text.encode())} bytes; a snapshot summary has room for {MAX_BYTES}.",
                hint="Feed the table from fewer partitions or files per run.",
            )
        return text

    def idle_until(self, moment: datetime) -> Position:
        """Return the same position, read through up to a later moment at the source."""
        through = moment.astimezone(UTC).isoformat(timespec="microseconds")
        return replace(self, read_through=max(self.read_through or through, through))


def decode(text: str) -> Position:
    """Decode a position from summary text."""
    document = json.loads(text)
    offsets = document.get("offsets", {})
    # former coordinates of the source kafka
    truncates = (document.get("truncate_order"), offsets.pop("truncated", None))
    return Position(
        source=document["source"],
        identity=document["identity"],
        offsets=offsets,
        read_through=document.get("read_through"),
        high_order=document.get("high_order"),
        truncate_order=max(filter(None, truncates), default=None),
        storage=document.get("storage"),
        feed=document.get("feed", ""),
        others=document.get("others", {}),
    )


def _lowest(moments: Sequence[str | None]) -> str | None:
    known = [moment for moment in moments if moment is not None]
    return min(known) if len(known) == len(moments) else None


@dataclass(frozen=True)
class Carrier:
    """The nearest ancestor of a branch head with a position, exactly as stored, and ids of its carriers before.

    If several jobs feed the table, its position is the one of the feed that committed last, with those of the other
    feeds.
    """

    snapshot_id: int
    text: str
    before: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Return its snapshot id and those before, as other tables' summaries refer to them."""
        return str(self.snapshot_id), *self.before

    @property
    def position(self) -> Position:
        """Return the decoded position."""
        return decode(self.text)

    def of(self, feed: str) -> Carrier | None:
        """Return the snapshot in which a feed of the table committed last; None if it never has."""
        position = self.position
        if position.feed == feed:
            return self
        if feed not in position.others:
            return None
        own = position.others[feed]
        return Carrier(int(own["snapshot"]), json.dumps(own["position"] | {"feed": feed}), tuple(own["before"]))

    @property
    def feeds(self) -> list[Carrier]:
        """Return the carriers of the table's feeds, first that of the last commit."""
        return [self, *(each for feed in self.position.others if (each := self.of(feed)))]


def beside_others(position: Position, feed: str, newest: Carrier | None, properties: Mapping[str, str]) -> Position:
    """Return the position that a feed's commit records: its own, with those of the table's other feeds.

    :param newest: of the table before the commit.
    :param properties: of the table, with the idle positions of the others.
    """
    others = {
        each.position.feed: {
            "snapshot": str(each.snapshot_id),
            "before": [*each.before],
            "position": json.loads(replace(_current(each, properties), feed="", others={}).encode()),
        }
        for each in (newest.feeds if newest else ())
        if each.position.feed != feed
    }
    return replace(position, feed=feed, others=others)


def nearest_carrier(ancestors: Iterable[tuple[int, Mapping[str, str]]]) -> Carrier | None:
    """Find the position of a branch.

    Maintenance commits have none, and a rollback rewinds the head, so the head's ancestry decides.

    :param ancestors: snapshot id and summary, from the head towards the root.
    """
    for snapshot_id, summary in ancestors:
        text = summary.get(names.POSITIONS)
        if text is not None:
            return Carrier(snapshot_id, text, carried_before(summary))
    return None


def carried_before(summary: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of snapshots that carried a snapshot's position before it."""
    return tuple(filter(None, summary.get(names.CARRIED_BEFORE, "").split(",")))


def encode_idle(carrier_snapshot_id: int, position: Position) -> str:
    """Encode a quiet table's position as the table property bound to the carrier that it extends."""
    own = replace(position, feed="", others={})
    return json.dumps({"after_snapshot": str(carrier_snapshot_id), "position": json.loads(own.encode())})


def current_position(
    carrier: Carrier | None, properties: Mapping[str, str], feed: str | None = None
) -> Position | None:
    """Return a table's position, including a quiet period after the nearest carrier of its branch.

    An idle position counts only while the carrier that it extends is still the nearest one: after a rollback the table
    no longer has the changes before it.

    :param feed: whose position; default: of the feed that committed last, read through as far as every feed is.
    """
    if carrier is None:
        return None
    if feed is not None:
        own = carrier.of(feed)
        return _current(own, properties) if own else None
    of_feeds = [_current(each, properties) for each in carrier.feeds]
    return replace(of_feeds[0], read_through=_lowest([each.read_through for each in of_feeds]))


def _current(carrier: Carrier, properties: Mapping[str, str]) -> Position:
    stored = carrier.position
    idle = idle_position(properties, carrier)
    return replace(idle, feed=stored.feed, others=stored.others) if idle else stored


def idle_position(properties: Mapping[str, str], after: Carrier) -> Position | None:
    """Return the idle position that extends a carrier; None without one."""
    idle = properties.get(names.of_feed(names.IDLE_POSITION, after.position.feed))
    if idle is None or json.loads(idle)["after_snapshot"] != str(after.snapshot_id):
        return None
    return _decode_idle(idle)


def idle_positions(properties: Mapping[str, str]) -> dict[str, Position]:
    """Return the idle positions of all feeds by the names of their properties, for any carrier."""
    return {name: _decode_idle(text) for name, text in properties.items() if name.startswith(names.IDLE_POSITION)}


def _decode_idle(text: str) -> Position:
    return decode(json.dumps(json.loads(text)["position"]))


@dataclass(frozen=True)
class SideOf:
    """Note in the summary of a history table's batch about the state of its table.

    A batch is committed to the history table first. While the table is still at that state, it has not applied the
    batch.

    :param table: its UUID.
    :param after: id of the snapshot with its position before the batch; None if it was never fed.
    :param full_load: the batch has all rows of the table; later parts of a load are normal batches.
    :param mark: highest order key in the history table before it.
    """

    table: str
    after: str | None
    full_load: bool
    mark: str | None

    def encode(self) -> dict[str, str]:
        """Encode the note as a summary entry."""
        return {SIDE_OF: json.dumps(asdict(self), sort_keys=True)}

    def is_ahead_of(self, table_uuid: str, carrier: Carrier | None) -> bool:
        """Check whether a table, with the carrier of its position, has not applied the batch."""
        return self.table == table_uuid and self.after in (carrier.ids if carrier else (None,))


def read_side_of(summary: Mapping[str, str]) -> SideOf | None:
    """Read the note from a summary; return None if it has none."""
    text = summary.get(SIDE_OF)
    return SideOf(**json.loads(text)) if text else None
