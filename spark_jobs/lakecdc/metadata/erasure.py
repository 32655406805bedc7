"""Erasures of rows: the last one as a property of each table involved, and each in a snapshot's summary.

Ingestion checks the property like the floor: a batch that started before an erasure is not committed after it. Exports
use the summary, because their last read snapshot is gone.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from lakecdc.metadata import names


def erasure_begun(key_digest: str) -> dict[str, str]:
    """Return the unique property of an erasure that has started; the digest reveals none of the keys."""
    return {names.ERASED: json.dumps({"id": uuid.uuid4().hex, "unfinished": key_digest})}


def erasure_ended() -> dict[str, str]:
    """Return the property of a proven erasure."""
    return {names.ERASED: json.dumps({"id": uuid.uuid4().hex})}


def unfinished_erasure(properties: Mapping[str, str]) -> str | None:
    """Return the key digest of an unfinished erasure; None if there is none."""
    digest: str | None = json.loads(properties.get(names.ERASED, "{}")).get("unfinished")
    return digest


@dataclass(frozen=True)
class ErasedAfter:
    """Note of an erasing snapshot about earlier ones, which expire.

    :param snapshots: ids of those that differ from it only by erased rows.
    :param rows: number of rows erased since the oldest of them.
    """

    snapshots: tuple[int, ...]
    rows: int

    def encode(self) -> dict[str, str]:
        """Return the entry of its summary."""
        return {names.ERASED_AFTER: json.dumps({"snapshots": self.snapshots, "rows": self.rows})}


def erased_after(summary: Mapping[str, str]) -> ErasedAfter | None:
    """Read the note from a summary; return None if the snapshot erased nothing."""
    text = summary.get(names.ERASED_AFTER)
    if text is None:
        return None
    note = json.loads(text)
    return ErasedAfter(tuple(note["snapshots"]), note["rows"])
