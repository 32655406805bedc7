"""A bucketed table that ingestion feeds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.iceberg.staging import stage_equality_deletes
from lakecdc.maintain.compact import compact_data_files
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed, PlainHistory, final_rows
from tests.lakecdc.maintain.support import listed_files, run


class Fed:
    """A table with two buckets that ingestion feeds, and the state of its source."""

    def __init__(self, lake: Lake, folder: Path, version: int) -> None:
        target = {"mode": "upsert", "partition_by": ["bucket(2, id)"], "format_version": version}
        self.lake, self.feed, self.history = lake, Feed(lake, folder, target), PlainHistory(random.Random(7))
        for key in range(20):
            self.history.insert(key)
        self.applied = 0
        self.take()

    @property
    def name(self) -> str:
        return self.feed.table

    def change(self) -> None:
        """Make updates, a delete and an insert, of old and new keys."""
        low = self.applied % 10
        for key in sorted(self.history.rows)[low : low + 4]:
            self.history.update(key, touch_doc=True)
        self.history.delete(min(self.history.rows))
        self.history.insert(100 + self.applied)

    def take(self) -> TableReport:
        events = self.history.events[self.applied :]
        self.applied = len(self.history.events)
        return self.feed.take(events)

    def ingest(self) -> TableReport:
        """Ingest a batch."""
        self.change()
        return self.take()

    def evolve(self, old: int = 2, new: int = 4) -> None:
        """Change the number of buckets."""
        self.lake.sql(f"ALTER TABLE lake.{self.name} REPLACE PARTITION FIELD bucket({old}, id) WITH bucket({new}, id)")

    def move(self, **options: Any) -> TableReport:
        """Compact, which moves rows of older specs."""
        return run(self.lake, compact_data_files, self.name, older_specs=True, **options)

    def specs(self) -> set[int]:
        """Return the specs of the live data files."""
        return {file.spec_id for file in listed_files(self.lake, self.name, 0)}

    def check(self) -> None:
        """Check that Spark reads the source's rows."""
        rows = self.lake.sql(f"SELECT {COLUMNS} FROM lake.{self.name}").collect()
        assert sorted((tuple(row) for row in rows), key=str) == final_rows(self.history)


def commit_foreign_deletes(lake: Lake, name: str) -> None:
    """Commit equality deletes as another engine does."""
    table = lake.table(name)
    delta = table.java.newRowDelta()
    for delete in stage_equality_deletes(table, lake.sql("SELECT 3L AS id").coalesce(1), ["id"], 0):
        delta.addDeletes(delete)
    delta.commit()
