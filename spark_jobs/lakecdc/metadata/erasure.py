"""Erasures of rows: the last one as a property of each table that had a part in it, and each in a snapshot's summary.

Ingestion goes by the property as by the floor: a batch that began before an erasure is not committed after it. Exports
go by the summary, as the snapshot that they have read last is gone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from lakecdc.metadata import names


def erasure_begun(key_digest: str) -> dict[str, str]:
    """The property of an erasure that has begun, unlike that of any other.

    :param key_digest: of the keys whose rows go, which tells none of them.
    """
    return {names.ERASED: json.dumps({"id": uuid.uuid4().hex, "unfinished": key_digest})}


def erasure_ended() -> dict[str, str]:
    """The property of an erasure that was proven."""
    return {names.ERASED: json.dumps({"id": uuid.uuid4().hex})}


def unfinished_erasure(properties: Mapping[str, str]) -> str | None:
    """The digest of the keys of an erasure that has begun and not ended; None if there is none."""
    found: str | None = json.loads(properties.get(names.ERASED, "{}")).get("unfinished")
    return found


@dataclass(frozen=True)
class ErasedAfter:
    """What an erasing snapshot says of those before it, which expire.

    :param snapshots: ids of those that differ from it by erased rows alone.
    :param rows: how many the newest of them lacks that the oldest had.
    """

    snapshots: tuple[int, ...]
    rows: int

    def encode(self) -> dict[str, str]:
        """The entry of its summary."""
        return {names.ERASED_AFTER: json.dumps({"snapshots": self.snapshots, "rows": self.rows})}


def erased_after(summary: Mapping[str, str]) -> ErasedAfter | None:
    """Read a summary; None of a snapshot that has erased nothing."""
    text = summary.get(names.ERASED_AFTER)
    if text is None:
        return None
    found = json.loads(text)
    return ErasedAfter(tuple(found["snapshots"]), found["rows"])
