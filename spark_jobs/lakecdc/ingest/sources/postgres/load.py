"""Full loads in parts: each part is committed with how far the load has come, and a later run goes on from there.

A snapshot dies with its session, so a later run reads the rest from a new one. Rows in the pages that were read already
are found by ``xmin``, the transaction that wrote them, and read again; what was deleted there is in the log, which is
still applied from the first snapshot on. Page numbers mean nothing once a table was rewritten (``VACUUM FULL``,
``CLUSTER``, ``TRUNCATE``): then the load begins anew, over the rows that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.ingest.sources.database import fingerprint
from lakecdc.ingest.sources.postgres.snapshot import Chunk, chunks
from lakecdc.runtime.progress import ProgressLog

if TYPE_CHECKING:
    from lakecdc.ingest.sources.postgres.catalog import SourceTable
    from lakecdc.ingest.sources.postgres.connect import Session


@dataclass(frozen=True)
class Progress:
    """How far a full load has come.

    :param xmin: every transaction below this number was over when the oldest snapshot in use was taken.
    :param leaf: oid of the leaf read last; leaves are read in the order of their oids.
    :param page: its first page that was not read; None if all were.
    :param files: fingerprint of the files that hold the leaves read so far.
    """

    xmin: int
    leaf: int
    page: int | None
    files: str

    def covers(self, chunk: Chunk) -> bool:
        """Whether a chunk's pages were read."""
        if chunk.leaf != self.leaf:
            return chunk.leaf < self.leaf
        return self.page is None or (chunk.end is not None and chunk.end <= self.page)


@dataclass(frozen=True)
class Part:
    """What one commit of a full load brings.

    :param after: progress of the load then; None if it is complete.
    :param again: rows of these chunks may be in the target already.
    """

    chunks: tuple[Chunk, ...]
    after: Progress | None
    again: bool


def parts(
    session: Session, table: SourceTable, chunk_bytes: int, part_bytes: int, xmin: int, before: Progress | None
) -> Iterator[Part]:
    """Cut the rest of a full load into parts.

    :param session: sees the table as the snapshot does, or later.
    :param chunk_bytes: of heap in a chunk.
    :param part_bytes: of heap in a part; 0 makes one part of all.
    :param xmin: of the snapshot that is read.
    :param before: progress of an earlier run.
    :raises SourceUnavailableError: the table was rewritten since the first part.
    """
    begun, files = before is not None, _files(session, table)
    if before is not None and before.files != _fingerprint(files, before.leaf):
        before = None
    found = _aligned(chunks(session, table, chunk_bytes), before)
    if before is not None:
        done = [chunk for chunk in found if before.covers(chunk)]
        found = found[len(done) :]
        changed = tuple(replace(chunk, written_since=before.xmin) for chunk in done)
        yield Part(changed, replace(before, xmin=xmin) if found else None, again=True)
    size = max(1, part_bytes // chunk_bytes) if part_bytes else max(1, len(found))
    told = ProgressLog(table.target.table, "chunks", len(found))
    for start in range(0, len(found), size):
        if (start or begun) and _files(session, table) != files:
            raise SourceUnavailableError(
                f"{table.label} was rewritten (VACUUM FULL, CLUSTER, TRUNCATE) while it was being loaded.",
                table=table.target.table,
                hint="Run again: its load begins anew.",
            )
        share = tuple(found[start : start + size])
        last = start + size >= len(found)
        after = Progress(xmin, share[-1].leaf, share[-1].end, _fingerprint(files, share[-1].leaf))
        yield Part(share, None if last else after, again=begun)
        # whoever asks for the next part has committed this one
        told.add(len(share))


def _aligned(found: Sequence[Chunk], before: Progress | None) -> list[Chunk]:
    """Return chunks with a border where an earlier run has stopped, which may have cut them otherwise."""
    aligned: list[Chunk] = []
    for chunk in found:
        page = before.page if before is not None and before.leaf == chunk.leaf else None
        if page is not None and chunk.first < page and (chunk.end is None or page < chunk.end):
            aligned += [replace(chunk, end=page), replace(chunk, first=page)]
        else:
            aligned.append(chunk)
    return aligned


def _files(session: Session, table: SourceTable) -> list[tuple[int, int | None]]:
    """Return the file of every leaf; a table that is rewritten gets a new one."""
    statement = "SELECT leaf::bigint, pg_relation_filenode(leaf)::bigint FROM unnest(%s::oid[]) leaf ORDER BY 1"
    oids = [leaf.oid for leaf in table.leaves]
    return [(leaf, file) for leaf, file in session.execute(statement, (oids,))]


def _fingerprint(files: Sequence[tuple[int, int | None]], last: int) -> str:
    return fingerprint([file for file in files if file[0] <= last])
