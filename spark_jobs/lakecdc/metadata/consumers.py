"""Registered consumers: who reads a table's changes, and how far each has come.

Each consumer is a property of the table, with a tag on the snapshot that it has read last. The tag keeps that snapshot
from expiries that know nothing of consumers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.metadata.names import CONSUMER_PREFIX, CONSUMER_TAG_PREFIX

#: seconds of silence after which a consumer that names no limit counts no more
LIMIT = 7 * 24 * 3600.0
#: what a consumer has read whose property cannot be read; no snapshot has this id
UNREADABLE = -1
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,62}", re.ASCII)


@dataclass(frozen=True)
class Consumer:
    """How far somebody has read a table.

    :param name: letters, digits, ``_``, ``.`` and ``-``.
    :param snapshot_id: the last snapshot it has read; that of none if its property cannot be read.
    :param limit: seconds without a move, while there is something to read, after which it counts no more.
    :param moved_at: when it was registered or moved last.
    """

    name: str
    snapshot_id: int
    limit: float
    moved_at: datetime

    @property
    def tag(self) -> str:
        """The tag on its snapshot."""
        return CONSUMER_TAG_PREFIX + self.name

    @property
    def is_readable(self) -> bool:
        """Whether its property says what it has read; otherwise whatever it may need has to be kept."""
        return self.snapshot_id != UNREADABLE

    @property
    def property_name(self) -> str:
        """The table property that holds it."""
        return CONSUMER_PREFIX + self.name

    def encode(self) -> str:
        """The property's value; the snapshot's id is text, because not every reader of JSON has 64 bits."""
        moved = self.moved_at.astimezone(UTC).isoformat()
        return json.dumps({"snapshot": str(self.snapshot_id), "limit": self.limit, "moved_at": moved})

    def is_silent(self, ancestors: Sequence[tuple[int, int]], now: datetime) -> bool:
        """Whether it has left unread for longer than its limit what there was to read.

        :param ancestors: ids and times (milliseconds since 1970) of the snapshots of ``main``, newest first.
        """
        if not self.is_readable:
            return False
        unread = None
        for snapshot_id, timestamp_ms in ancestors:
            if snapshot_id == self.snapshot_id:
                break
            unread = timestamp_ms
        if unread is None:
            return False
        since = max(self.moved_at, datetime.fromtimestamp(unread / 1000, UTC))
        return (now - since).total_seconds() > self.limit


def check_name(name: str, table: str) -> str:
    """Return a consumer's name.

    :raises InputError: it cannot be part of a property and a tag.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"The consumer's name is {name!r}.",
            table=table,
            hint="Letters, digits, _, . and - may be in it, 63 at most; it begins with none of the last two.",
        )
    return name


def read_consumers(properties: Mapping[str, str]) -> dict[str, Consumer]:
    """Return a table's consumers by name, also those whose property cannot be read."""
    return {
        key.removeprefix(CONSUMER_PREFIX): _decode(key.removeprefix(CONSUMER_PREFIX), value)
        for key, value in properties.items()
        if key.startswith(CONSUMER_PREFIX)
    }


def _decode(name: str, text: str) -> Consumer:
    try:
        found = json.loads(text)
        moved_at = datetime.fromisoformat(found["moved_at"])
        if moved_at.tzinfo is not None:
            return Consumer(name, int(found["snapshot"]), float(found["limit"]), moved_at)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass
    return Consumer(name, UNREADABLE, LIMIT, datetime.max.replace(tzinfo=UTC))
