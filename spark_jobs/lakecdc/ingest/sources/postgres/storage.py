"""Detect changes of a source table's rows for which the log has no events.

The log has no rows for values that ALTER TABLE computes, for partitions that are attached, detached, dropped or
truncated on their own, and for renamed enum labels. The catalog shows them: by the partition tree, the files of the
leaves, and the transactions that wrote the catalog's rows. A target records them in its position; a change that cannot
be ruled out stops the table.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.ingest.sources.postgres.catalog import SourceTable
from lakecdc.ingest.sources.postgres.connect import Session, one
from lakecdc.model.positions import lsn

# one statement, for a consistent state; a table's row for the column ctid is as old as the table
_TREE = """
WITH RECURSIVE tree(oid, parent, xid, cid) AS (
  SELECT %(oid)s::oid, 0::oid, 0::bigint, 0::bigint
  UNION ALL
  SELECT i.inhrelid, i.inhparent, i.xmin::text::bigint, i.cmin::text::bigint
  FROM tree JOIN pg_class p ON p.oid = tree.oid AND p.relkind = 'p' JOIN pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.oid::bigint, tree.parent::bigint, tree.xid, tree.cid, birth.xmin::text::bigint = tree.xid,
  n.nspname, c.relname, c.relkind = 'p', c.relfilenode::bigint, c.xmin::text::bigint,
  (SELECT string_agg(a.attnum || ':' || a.xmin::text, ',' ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0),
  txid_snapshot_xmin(txid_current_snapshot()), pg_current_wal_insert_lsn()::text
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_attribute birth ON birth.attrelid = c.oid AND birth.attnum = -1
"""
_LABELS = """
SELECT e.enumtypid::bigint, t.typname, e.oid::bigint, e.enumlabel FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid
WHERE e.enumtypid IN (
  SELECT unnest(ARRAY[k.oid, k.typelem, k.typbasetype]) FROM pg_attribute a JOIN pg_type k ON k.oid = a.atttypid
  WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL(%s::text[]))
ORDER BY e.oid
"""
# half of the wraparound range of transaction numbers
_COMPARABLE = 2**31


@dataclass(frozen=True)
class _Node:
    """A table of the partition tree.

    :param xid: transaction that attached it to its parent.
    :param cid: the command in that transaction.
    :param born: the same transaction created it.
    :param changed_by: transaction that wrote its catalog row: the one that assigned its file, or a later one.
    :param columns: the transactions that wrote its columns' catalog rows.
    """

    oid: int
    parent: int
    xid: int
    cid: int
    born: bool
    schema: str
    name: str
    partitioned: bool
    file: int
    changed_by: int
    columns: str

    def rows_from_before(self) -> str:
        """Return the SQL condition of rows that the table may have had when it was attached."""
        if not self.born:
            return "true"
        # locking a row overwrites its command number
        return (
            f"CASE WHEN xmin::text = '{self.xid}' THEN cmin::text::bigint <= {self.cid} OR xmax::text <> '0' "
            f"ELSE age(xmin) >= age('{self.xid}'::xid) END"
        )


@dataclass(frozen=True)
class _Storage:
    """The catalog's view of a table at one time.

    :param labels: name of each enum type, and its labels by their oids.
    :param xmin: all transactions below this number had ended.
    :param lsn: the log up to here has all visible commits.
    """

    nodes: Mapping[int, _Node]
    labels: Mapping[int, tuple[str, Mapping[int, str]]]
    xmin: int
    lsn: int

    @property
    def leaves(self) -> dict[int, _Node]:
        return {oid: node for oid, node in self.nodes.items() if not node.partitioned}

    def path(self, leaf: int) -> list[_Node]:
        """Return a leaf and its parent partitions, without the table itself."""
        path = []
        while (node := self.nodes[leaf]).parent:
            path.append(node)
            leaf = node.parent
        return path

    def links(self, leaves: Iterable[int]) -> str:
        """Return a digest of the partition tree between leaves and table."""
        links = {(node.oid, node.parent, node.xid) for leaf in leaves for node in self.path(leaf)}
        return _digest(repr(sorted(links)))

    def columns(self, leaves: Iterable[int]) -> str:
        return _digest(repr([(leaf, self.nodes[leaf].columns) for leaf in sorted(leaves)]))


@dataclass(frozen=True)
class Remembered:
    """The storage of a source table as recorded in its target's position.

    :param files: of the leaves, by their oids.
    :param links: digest of the partition tree above them.
    :param columns: digest of their columns.
    :param labels: the highest label oid of each enum type, and a digest of all labels up to it.
    :param xmin: all transactions below this number had ended.
    """

    files: Mapping[int, int]
    links: str
    columns: str
    labels: Mapping[int, tuple[int, str]]
    xmin: int

    @classmethod
    def of(cls, now: _Storage) -> Remembered:
        leaves = now.leaves
        labels = {enum: (max(members), _labels(members, max(members))) for enum, (_, members) in now.labels.items()}
        files = {leaf: node.file for leaf, node in leaves.items()}
        return cls(files, now.links(leaves), now.columns(leaves), labels, now.xmin)

    def encode(self) -> dict[str, Any]:
        """Encode compactly for a position: numbers of thousands of partitions differ by little."""
        before, numbers = 0, list[int]()
        for leaf in sorted(self.files):
            numbers += [leaf - before, self.files[leaf] - leaf]
            before = leaf
        packed = base64.b64encode(zlib.compress(json.dumps(numbers, separators=(",", ":")).encode(), 9)).decode()
        labels = {"labels": {str(enum): list(last) for enum, last in self.labels.items()}} if self.labels else {}
        return {"files": packed, "links": self.links, "columns": self.columns, "xmin": self.xmin, **labels}

    @classmethod
    def decode(cls, document: Mapping[str, Any]) -> Remembered:
        numbers = json.loads(zlib.decompress(base64.b64decode(document["files"])))
        leaves = itertools.accumulate(numbers[::2])
        files = {leaf: leaf + more for leaf, more in zip(leaves, numbers[1::2], strict=True)}
        labels = {int(enum): (last[0], last[1]) for enum, last in document.get("labels", {}).items()}
        return cls(files, document["links"], document["columns"], labels, document["xmin"])


class StorageWatch:
    """Compare a table's storage with the one recorded in its target's position.

    :param remembered: recorded in the position; None if the table was never fed.
    :ivar read_at: LSN up to which the log has all changes visible in the catalog at the start.
    :raises InputError: rows may have changed without events.
    """

    def __init__(self, session: Session, table: SourceTable, remembered: Mapping[str, Any] | None) -> None:
        self._session, self._table = session, table
        now = _read(session, table)
        self._remembered = Remembered.decode(remembered) if remembered else Remembered.of(now)
        self.read_at = now.lsn
        # leaves with a new file, which a TRUNCATE of the table, later in the log, may explain
        self._unexplained = self._compare(now, None)

    def encode(self) -> dict[str, Any]:
        """Encode for the position of a batch accepted by :meth:`follow`."""
        return self._remembered.encode()

    def follow(self, to: int, altered: bool, truncated_by: int | None) -> None:
        """Compare again if a batch of the log describes the table, and check that the log explains new files.

        :param to: LSN at the end of the batch.
        :param altered: the log describes the table, as it does before its first event and after DDL.
        :param truncated_by: transaction of its last TRUNCATE in the batch.
        :raises InputError: rows may have changed without events.
        """
        if altered or truncated_by is not None:
            self._unexplained &= self._compare(_read(self._session, self._table), truncated_by)
        if self._unexplained and to >= self.read_at:
            raise self._table.full_load_needed(
                f"A partition of {self._table.label} has another file and no row from before the last run: it may have "
                "been truncated (VACUUM FULL and CLUSTER of a partition without older rows look the same)"
            )

    def _compare(self, now: _Storage, truncated_by: int | None) -> set[int]:
        """Record the current storage, and return the leaves whose rows may have changed without an event."""
        before, leaves, label = self._remembered, now.leaves, self._table.label
        if before.files.keys() - leaves.keys():
            raise self._table.full_load_needed(
                f"A partition of {label} was detached or dropped, and the log does not show it"
            )
        changed = {leaf for leaf, file in before.files.items() if leaves[leaf].file != file}
        if changed and now.columns(before.files) != before.columns:
            raise self._table.full_load_needed(
                f"The rows of {label} were rewritten and its columns altered, and the log lacks values computed by "
                "ALTER TABLE"
            )
        if now.links(before.files) != before.links:
            raise self._table.full_load_needed(f"A partition of {label} was detached and attached again")
        self._check_labels(now)
        known = {node.oid for leaf in before.files for node in now.path(leaf)}
        for leaf in leaves.keys() - before.files.keys():
            self._check_new(now, leaf, known)
        unexplained = {leaf for leaf in changed if self._may_be_truncated(now, leaves[leaf], truncated_by)}
        current = Remembered.of(now)
        if unexplained:
            files = {**current.files, **{leaf: before.files[leaf] for leaf in unexplained}}
            current = replace(current, files=files, xmin=before.xmin)
        self._remembered = current
        return unexplained

    def _check_labels(self, now: _Storage) -> None:
        for enum, (last, digest) in self._remembered.labels.items():
            if enum in now.labels and _labels(now.labels[enum][1], last) != digest:
                raise self._table.full_load_needed(
                    f"Labels of the enum type {now.labels[enum][0]} of {self._table.label} were renamed, also in rows "
                    "that the log lacks"
                )

    def _check_new(self, now: _Storage, leaf: int, known: set[int]) -> None:
        """Refuse a new leaf that may have been attached with rows."""
        links = [node.rows_from_before() for node in now.path(leaf) if node.oid not in known]
        if self._any_row(now.nodes[leaf], " OR ".join(links)):
            node = now.nodes[leaf]
            raise self._table.full_load_needed(
                f"The partition {node.schema}.{node.name} may have been attached to {self._table.label} with rows that "
                "the log lacks"
            )

    def _may_be_truncated(self, now: _Storage, leaf: _Node, truncated_by: int | None) -> bool:
        """Check whether a leaf with another file may have lost rows; a TRUNCATE of the table itself is in the log."""
        if leaf.oid == self._table.oid or leaf.changed_by == truncated_by:
            return False
        before = self._remembered.xmin
        older = f"age(xmin) > age('{before % 2**32}'::xid)"
        return now.xmin - before >= _COMPARABLE or not self._any_row(leaf, older)

    def _any_row(self, leaf: _Node, condition: str) -> bool:
        from psycopg import errors, sql

        statement = sql.SQL("SELECT EXISTS (SELECT FROM ONLY {} WHERE {})").format(
            sql.Identifier(leaf.schema, leaf.name), sql.SQL(condition)
        )
        try:
            return bool(one(self._session, statement)[0])
        except errors.InsufficientPrivilege as error:
            name = f"{leaf.schema}.{leaf.name}"
            raise InputError(
                f"Cannot check whether the partition {name} was attached with rows that the log lacks: the login may "
                "not read it.",
                hint=f"Run GRANT SELECT ON {name} TO {self._session.info.user} at the source.",
            ) from error


def is_unchanged(session: Session, table: SourceTable, remembered: Mapping[str, Any]) -> bool:
    """Check that a table's storage is the one recorded in a position, so the table was not altered."""
    now, before = Remembered.of(_read(session, table)), Remembered.decode(remembered)
    return replace(now, xmin=before.xmin) == before


def _read(session: Session, table: SourceTable) -> _Storage:
    rows = session.execute(_TREE, {"oid": table.oid}).fetchall()
    labels: dict[int, tuple[str, dict[int, str]]] = {}
    for enum, name, oid, label in session.execute(_LABELS, (table.oid, list(table.target.exclude_columns))):
        labels.setdefault(enum, (name, {}))[1][oid] = label
    if not rows:
        raise table.full_load_needed(f"The source table {table.label} was dropped")
    return _Storage({row[0]: _Node(*row[:11]) for row in rows}, labels, int(rows[0][11]), max(lsn(r[12]) for r in rows))


def _labels(labels: Mapping[int, str], last: int) -> str:
    """Return a digest of an enum's labels up to one; new labels follow it."""
    return _digest(repr(sorted((oid, label) for oid, label in labels.items() if oid <= last)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
