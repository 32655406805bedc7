"""Which files a table has read: fingerprints in its position, and in a table beside it once they are many.

The table beside, ``<table>_lakecdc_files``, is only ever appended to: chapters of fingerprints, each with the chapter
before it. The position names the newest chapter, so that chapters of interrupted, overtaken or rolled-back runs are on
no chain that anybody follows.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.local_relation import local_relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.metadata.positions import Position

SUFFIX = "_lakecdc_files"
# eight bytes of a hash name a file: among a million files, two share one with a chance of one in 37 million
_BYTES = 8
# fingerprints in a position; summaries are kept for every snapshot
_MOST = 400


@dataclass(frozen=True)
class Memory:
    """What a table has read.

    :param recent: fingerprints in its position.
    :param chapter: newest chapter in the table beside it; empty if there is none.
    :param older: fingerprints of that chapter and those before it.
    :param count: files read so far.
    """

    recent: frozenset[str] = frozenset()
    chapter: str = ""
    older: frozenset[str] = frozenset()
    count: int = 0

    @property
    def all(self) -> frozenset[str]:
        """Every fingerprint."""
        return self.recent | self.older

    def offsets(self) -> dict[str, object]:
        """As it stands in a position."""
        found: dict[str, object] = {"seen": "".join(sorted(self.recent)), "count": self.count}
        return found | ({"chapter": self.chapter} if self.chapter else {})


def fingerprint(name: str) -> str:
    """A file's name in few characters."""
    digest = hashlib.blake2b(name.encode(), digest_size=_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def recall(spark: SparkSession, catalog: str, table: str, position: Position | None) -> Memory:
    """What a position says has been read.

    :raises InputError: if the table beside does not hold a chapter any more.
    """
    if position is None:
        return Memory()
    if "files" in position.offsets:
        raise InputError(
            "Its position is of a version of lakecdc before the first release.", table=table, hint="Load a new table."
        )
    text, chapter = str(position.offsets.get("seen", "")), str(position.offsets.get("chapter", ""))
    size = len(fingerprint(""))
    recent = frozenset(text[i : i + size] for i in range(0, len(text), size))
    older = _follow(spark, catalog, table, chapter) if chapter else frozenset()
    return Memory(recent, chapter, older, int(position.offsets.get("count", len(recent))))


def extended(
    spark: SparkSession, catalog: str, table: str, memory: Memory, names: Iterable[str], *, keep: bool
) -> Memory:
    """The memory with further files; writes a chapter if they are too many for a position.

    :param keep: false where nothing may be written.
    """
    new = frozenset(fingerprint(name) for name in names)
    recent, count = memory.recent | new, memory.count + len(new)
    if len(recent) <= _MOST:
        return Memory(recent, memory.chapter, memory.older, count)
    # the same files after the same chapter are the same chapter, so that a run made again writes nothing twice
    text = "".join((memory.chapter, *sorted(recent)))
    chapter = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    if keep:
        _write(spark, catalog, table, chapter, memory.chapter, recent)
    return Memory(frozenset(), chapter, memory.older | recent, count)


def _follow(spark: SparkSession, catalog: str, table: str, chapter: str) -> frozenset[str]:
    name = table + SUFFIX
    beside = open_if_there(spark, catalog, name)
    rows = spark.table(beside.sql_name).select("chapter", "previous", "file").collect() if beside else []
    files: dict[str, set[str]] = {}
    previous: dict[str, str] = {}
    for row in rows:
        files.setdefault(row["chapter"], set()).add(row["file"])
        previous[row["chapter"]] = row["previous"]
    found: set[str] = set()
    while chapter:
        if chapter not in files:
            raise InputError(
                f"The table {name} no longer tells which files have been read.",
                table=table,
                hint="Roll it back to a snapshot that does, or load a new table.",
            )
        found |= files[chapter]
        chapter = previous[chapter]
    return frozenset(found)


def _write(spark: SparkSession, catalog: str, table: str, chapter: str, previous: str, files: Iterable[str]) -> None:
    name = table + SUFFIX
    beside = open_if_there(spark, catalog, name) or _create(spark, catalog, name)
    if not spark.table(beside.sql_name).where(f"chapter = '{chapter}'").isEmpty():
        return
    rows = [(chapter, previous, file) for file in sorted(files)]
    found = local_relation(spark, rows, "chapter string, previous string, file string")
    found.coalesce(1).writeTo(beside.sql_name).append()


def _create(spark: SparkSession, catalog: str, name: str) -> IcebergTable:
    columns = [("chapter", "string", True), ("previous", "string", True), ("file", "string", True)]
    return definition.create_side_table(spark, catalog, name, columns)
