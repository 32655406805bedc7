"""Remember which files a table has read: as fingerprints in its position, or in a side table if they are many.

The side table ``<table>_lakecdc_files`` has chapters of fingerprints, each linked to the previous one. The position
names the newest chapter, so chapters of interrupted, overtaken or rolled-back runs belong to no used chain. Ingestion
only adds chapters. To forget files that the source no longer has, it begins a new chain without them, and
``clean_side_tables`` removes the former one once no snapshot uses it.

Only files read under the source's current paths can be forgotten; others stay at the end of every chain.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.local_relation import local_relation
from lakecdc.metadata.positions import Position

SUFFIX = "_lakecdc_files"
# bytes of a file's hash: among a million files, the chance that two share one is one in 37 million
_BYTES = 8
# fingerprints in a position; every snapshot keeps its summary
_MOST = 400
#: column name, type, NOT NULL
_COLUMNS = (
    ("chapter", "string", True),
    ("previous", "string", True),
    ("file", "string", True),
    ("instead", "string", False),
)


@dataclass(frozen=True)
class Memory:
    """Files that a table has read.

    :param recent: fingerprints in its position.
    :param chapter: newest chapter in the side table; empty if there is none.
    :param older: fingerprints of that chapter and earlier ones, up to ``lasts``.
    :param count: number of files read.
    :param paths: fingerprint of the paths of ``recent`` and ``older``; empty if several or unknown.
    :param lasts: newest of the chapters that are never shortened; empty if there is none.
    :param lasting: fingerprints of that chapter and earlier ones.
    """

    recent: frozenset[str] = frozenset()
    chapter: str = ""
    older: frozenset[str] = frozenset()
    count: int = 0
    paths: str = ""
    lasts: str = ""
    lasting: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """Every fingerprint."""
        return self.recent | self.older | self.lasting

    def offsets(self) -> dict[str, object]:
        """Return the entries of a position."""
        entries: dict[str, object] = {"seen": "".join(sorted(self.recent)), "count": self.count}
        optional = {"chapter": self.chapter, "paths": self.paths, "lasts": self.lasts}
        return entries | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True)
class Shown:
    """Files that a source shows.

    :param paths: fingerprint of the listed paths.
    :param files: fingerprints of all existing files; empty if none may be forgotten.
    :param forget_above: number of missing files above which they are forgotten; 0 means never.
    """

    paths: str
    files: frozenset[str] = frozenset()
    forget_above: int = 0


@dataclass(frozen=True)
class Chapter:
    """Fingerprints written at once.

    :param previous: the chapter before it; empty for the first one.
    :param instead: newest chapter of the chain that it replaces; empty if it continues ``previous``.
    """

    previous: str
    files: frozenset[str] = frozenset()
    instead: str = ""

    @property
    def name(self) -> str:
        """Return a name that depends only on files and links, so that a repeated run writes nothing twice."""
        text = "".join((self.instead, self.previous, *sorted(self.files)))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def fingerprint(name: str) -> str:
    """Shorten a file's name."""
    digest = hashlib.blake2b(name.encode(), digest_size=_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def recent(position: Position) -> frozenset[str]:
    """Return the fingerprints in a position."""
    text, size = str(position.offsets.get("seen", "")), len(fingerprint(""))
    return frozenset(text[i : i + size] for i in range(0, len(text), size))


def recall(spark: SparkSession, catalog: str, table: str, position: Position | None) -> Memory:
    """Return the files of a position; raise an :class:`InputError` if the side table lacks a chapter."""
    if position is None:
        return Memory()
    chapter, paths, lasts = (str(position.offsets.get(name, "")) for name in ("chapter", "paths", "lasts"))
    chapters = _chapters(spark, catalog, table) if chapter else {}
    try:
        ends = chain(chapters, lasts)
        begins = [name for name in chain(chapters, chapter) if name not in ends]
    except KeyError as error:
        raise InputError(
            f"The table {table}{SUFFIX} does not have all names of the files that have been read.",
            hint="Roll it back to a snapshot that has them, or load a new table.",
        ) from error
    older, lasting = (frozenset[str]().union(*(chapters[name].files for name in part)) for part in (begins, ends))
    count = int(position.offsets.get("count", len(recent(position))))
    return Memory(recent(position), chapter, older, count, paths, lasts, lasting)


def extended(memory: Memory, names: Iterable[str], shown: Shown) -> tuple[Memory, list[Chapter]]:
    """Return the memory with further files, and the chapters to write before a position names them."""
    new = frozenset(fingerprint(name) for name in names)
    if not new:
        return memory, []
    memory, chapters = _under(shown, memory)
    recent, count, next_ = memory.recent | new, memory.count + len(new), Chapter(memory.chapter)
    vanished = (memory.recent | memory.older) - shown.files
    if shown.forget_above and len(vanished) > shown.forget_above:
        recent = (recent | memory.older) - vanished
        if memory.older:
            next_ = Chapter(memory.lasts, instead=memory.chapter)
            memory = replace(memory, older=frozenset())
    if len(recent) <= _MOST and not next_.instead:
        return replace(memory, recent=recent, count=count), chapters
    next_ = replace(next_, files=recent)
    older = memory.older | recent
    return replace(memory, recent=frozenset(), chapter=next_.name, older=older, count=count), [*chapters, next_]


def _under(shown: Shown, memory: Memory) -> tuple[Memory, list[Chapter]]:
    """Return the memory for the current paths; files of other paths stay, because their listing is unknown."""
    if memory.paths == shown.paths or not memory.count:
        return replace(memory, paths=shown.paths), []
    if not shown.forget_above:
        return replace(memory, paths=""), []
    chapters = [Chapter(memory.chapter, memory.recent)] if memory.recent else []
    lasts = chapters[0].name if chapters else memory.chapter
    return Memory(chapter=lasts, count=memory.count, paths=shown.paths, lasts=lasts, lasting=memory.all), chapters


def chain(chapters: Mapping[str, Chapter], newest: str) -> list[str]:
    """Return the names of a chapter and the earlier ones; raise a :class:`KeyError` if one is missing."""
    names = []
    while newest:
        names.append(newest)
        newest = chapters[newest].previous
    return names


def replaced_chapters(
    chapters: Mapping[str, Chapter], current: Position | None, positions: Iterable[Position | None]
) -> set[str]:
    """Return the chapters that no run can use any more, because the table's chain has replaced theirs.

    A run that began before the replacement continues from one of them, and the table's position refuses its commit. A
    chapter that continues or replaces the current chain stays: its run may be about to commit.

    :param chapters: read before the positions, see :func:`chapter_links`.
    :param current: position of the newest snapshot with one.
    :param positions: all positions that the table may be rolled back to.
    :raises KeyError: a chapter of a chain is missing.
    """
    newest = _newest_chapter(current)
    live = {name for each in {newest, *map(_newest_chapter, positions)} for name in chain(chapters, each)}
    replaced: set[str] = set()
    left = [chapters[name].instead for name in chain(chapters, newest)]
    while left:
        name = left.pop()
        # an earlier run that removed a chapter also removed the chapters that it replaced
        while name in chapters and name not in live | replaced:
            replaced.add(name)
            left.append(chapters[name].instead)
            name = chapters[name].previous
    # chapters of runs that were interrupted before their commit
    while more := {n for n, c in chapters.items() if n not in live | replaced and {c.previous, c.instead} & replaced}:
        replaced |= more
    return replaced


def chapter_links(beside: IcebergTable) -> dict[str, Chapter]:
    """Read all chapters without their files."""
    rows = beside.spark.table(beside.sql_name).select("chapter", "previous", "instead").distinct()
    return {row["chapter"]: Chapter(row["previous"], instead=row["instead"] or "") for row in rows.collect()}


def _newest_chapter(position: Position | None) -> str:
    return str(position.offsets.get("chapter", "")) if position and position.source == "files" else ""


def write(spark: SparkSession, catalog: str, table: str, chapters: Iterable[Chapter]) -> None:
    """Write the missing chapters."""
    name = table + SUFFIX
    for chapter in chapters:
        beside = open_if_there(spark, catalog, name) or definition.create_side_table(spark, catalog, name, _COLUMNS)
        if spark.table(beside.sql_name).where(f"chapter = '{chapter.name}'").isEmpty():
            rows = [(chapter.name, chapter.previous, file, chapter.instead or None) for file in sorted(chapter.files)]
            frame = local_relation(spark, rows, ", ".join(f"{column} {kind}" for column, kind, _ in _COLUMNS))
            frame.coalesce(1).writeTo(beside.sql_name).append()


def _chapters(spark: SparkSession, catalog: str, table: str) -> dict[str, Chapter]:
    beside = open_if_there(spark, catalog, table + SUFFIX)
    rows = spark.table(beside.sql_name).select("chapter", "previous", "file").collect() if beside else []
    files: dict[str, set[str]] = {}
    previous: dict[str, str] = {}
    for row in rows:
        files.setdefault(row["chapter"], set()).add(row["file"])
        previous[row["chapter"]] = row["previous"]
    return {name: Chapter(previous[name], frozenset(names)) for name, names in files.items()}
