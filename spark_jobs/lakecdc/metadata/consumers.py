"""Registered consumers of a table's changes, and how far each has read.

Each consumer is a property of the table, with a tag on its last read snapshot. The tag protects that snapshot from
expiry by tools that do not know consumers.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.metadata.names import CONSUMER_PREFIX, CONSUMER_TAG_PREFIX

#: default seconds of silence after which a consumer no longer counts
LIMIT = 7 * 24 * 3600.0
#: snapshot id of a consumer whose property cannot be parsed; no snapshot has it
UNREADABLE = -1
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,62}", re.ASCII)


@dataclass(frozen=True)
class Consumer:
    """A consumer and how far it has read a table.

    :param name: letters, digits, ``_``, ``.`` and ``-``.
    :param snapshot_id: the last snapshot it has read; :data:`UNREADABLE` if its property cannot be parsed.
    :param limit: seconds without progress, while there is something to read, after which it no longer counts.
    :param moved_at: when it was registered or last moved.
    """

    name: str
    snapshot_id: int
    limit: float
    moved_at: datetime

    @property
    def tag(self) -> str:
        """Return the name of the tag on its snapshot."""
        return CONSUMER_TAG_PREFIX + self.name

    @property
    def is_readable(self) -> bool:
        """Check whether its property can be parsed; otherwise everything it may need must be kept."""
        return self.snapshot_id != UNREADABLE

    @property
    def property_name(self) -> str:
        """Return the name of its table property."""
        return CONSUMER_PREFIX + self.name

    def encode(self) -> str:
        """Encode the property's value; the snapshot's id is text, because not every JSON reader has 64 bits."""
        moved = self.moved_at.astimezone(UTC).isoformat()
        return json.dumps({"snapshot": str(self.snapshot_id), "limit": self.limit, "moved_at": moved})

    def is_silent(self, ancestors: Sequence[tuple[int, int]], now: datetime) -> bool:
        """Check whether it has left something unread for longer than its limit.

        :param ancestors: ids and times (milliseconds since 1970) of the snapshots of ``main``, newest first.
        """
        unread = list(itertools.takewhile(lambda ancestor: ancestor[0] != self.snapshot_id, ancestors))
        if not self.is_readable or not unread:
            return False
        since = max(self.moved_at, datetime.fromtimestamp(unread[-1][1] / 1000, UTC))
        return (now - since).total_seconds() > self.limit


def check_name(name: str, table: str) -> str:
    """Return a valid consumer name, which can be part of a property and a tag.

    :raises InputError: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"Invalid consumer name {name!r}.",
            table=table,
            hint="Use up to 63 letters, digits, _, . and -, not starting with . or -.",
        )
    return name


def read_consumers(properties: Mapping[str, str]) -> dict[str, Consumer]:
    """Return a table's consumers by name, including those whose property cannot be parsed."""
    return {
        key.removeprefix(CONSUMER_PREFIX): _decode(key.removeprefix(CONSUMER_PREFIX), value)
        for key, value in properties.items()
        if key.startswith(CONSUMER_PREFIX)
    }


def _decode(name: str, text: str) -> Consumer:
    try:
        document = json.loads(text)
        moved_at = datetime.fromisoformat(document["moved_at"])
        if moved_at.tzinfo is not None:
            return Consumer(name, int(document["snapshot"]), float(document["limit"]), moved_at)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass
    return Consumer(name, UNREADABLE, LIMIT, datetime.max.replace(tzinfo=UTC))
