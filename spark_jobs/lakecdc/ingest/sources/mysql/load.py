"""Full loads in parts: each part is committed with how far the load has come, and a later run goes on from there.

Chunks are read in the order of the column that they are cut by, so that one value tells how far: rows below it were
read, the others were not. What happens to rows in the meantime, also when they move from one side to the other, is in
the log, which is applied from the place noted before the first part on. The rows that are left may be cut anew: what
was read stays below that value. It means nothing any more once the column is compared otherwise than before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.ingest.sources.log.load import fingerprint
from lakecdc.ingest.sources.mysql.connect import query
from lakecdc.ingest.sources.mysql.snapshot import Chunk, chunks
from lakecdc.runtime.failpoints import reach
from lakecdc.runtime.progress import ProgressLog

if TYPE_CHECKING:
    from lakecdc.ingest.sources.mysql.catalog import SourceTable
    from lakecdc.ingest.sources.mysql.connect import Session

# every retained snapshot has its position in metadata.json
_MOST_BYTES = 1000
_LEADING = """
SELECT COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = %s
"""


@dataclass(frozen=True)
class Progress:
    """How far a full load has come.

    :param bound: SQL literal; every row whose leading column lies below it was read. None if all rows were.
    :param leading: fingerprint of the leading column.
    """

    bound: str | None
    leading: str


@dataclass(frozen=True)
class Part:
    """What one commit of a full load brings.

    :param chunks: none in the last one, which tells that the reading has ended.
    :param after: how far the load has come then; None if it is complete.
    """

    chunks: tuple[Chunk, ...]
    after: Progress | None


def parts(
    session: Session, table: SourceTable, chunk_rows: int, part_rows: int, before: Progress | None
) -> Iterator[Part]:
    """Cut a full load, or what is left of it, into parts.

    :param session: one that delivers texts.
    :param part_rows: rows in a part; 0 makes one part of all.
    :param before: how far an earlier run has come.
    :raises InputError: the leading column has changed since the first part.
    """
    leading = before.leading if before else _fingerprint(session, table)
    _check(session, table, leading)
    bound = before.bound if before else None
    found = [] if before and bound is None else chunks(session, table, chunk_rows, bound)
    reach("after_chunks")
    size = max(1, part_rows // chunk_rows) if part_rows else max(1, len(found))
    told = ProgressLog(table.target.table, "chunks", len(found))
    for share in _shares(found, size):
        _check(session, table, leading)
        yield Part(share, Progress(share[-1].end, leading))
        # whoever asks for the next part has committed this one
        told.add(len(share))
    # what was read last must not have been compared otherwise either
    _check(session, table, leading)
    yield Part((), None)


def _shares(found: Sequence[Chunk], size: int) -> Iterator[tuple[Chunk, ...]]:
    """Cut where a commit can tell the end."""
    share: list[Chunk] = []
    for chunk in found:
        share.append(chunk)
        if len(share) >= size and chunk.end is not None and len(json.dumps(chunk.end)) <= _MOST_BYTES:
            yield tuple(share)
            share = []
    if share:
        yield tuple(share)


def _check(session: Session, table: SourceTable, leading: str) -> None:
    if _fingerprint(session, table) != leading:
        raise full_load_needed(
            f"{table.label} has changed the column {table.leading!r}, in whose order it is loaded, meanwhile",
            table.target.table,
        )


def _fingerprint(session: Session, table: SourceTable) -> str:
    """Return the fingerprint of what the order of the leading column depends on."""
    return fingerprint(query(session, _LEADING, (table.schema, table.name, table.leading or "")))
