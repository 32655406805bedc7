"""Tables in a separate catalog, because the job looks at every table of its catalog, and old unknown files."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import Catalog, parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.orphans.job import RemoveOrphanFiles
from lakecdc.maintain.orphans.search import FOLDER
from lakecdc.runtime.session import use_catalog
from tests.conftest import Lake

DAY = 24 * 3600
OLD = 30 * DAY


@dataclass
class Attic:
    """A catalog in a folder whose name breaks wrong encoding and decoding.

    :param name: name of the catalog.
    """

    lake: Lake
    folder: Path
    name: str
    counter: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        uri = f"sqlite:///{self.folder}/{self.name}.db"
        self.properties = {"type": "sql", "uri": uri, "warehouse": f"file://{self.folder}/my lake 100%20"}
        use_catalog(self.lake.spark, Catalog(self.name, dict(self.properties)))
        self.sql("CREATE NAMESPACE IF NOT EXISTS {}.test")

    def sql(self, statement: str) -> Any:
        """Run SQL with the catalog's name for ``{}``."""
        return self.lake.sql(statement.replace("{}", self.name))

    def create(self, version: int, partitioned_by: str = "", location: str = "", **properties: str) -> str:
        """Create a table of ids and texts; ``__`` in a property's name means a dot."""
        name = f"test.t{next(self.counter)}"
        settings = {"format-version": str(version), "write.delete.mode": "merge-on-read"}
        settings |= {key.replace("__", "."): value for key, value in properties.items()}
        listed = ", ".join(f"'{key}'='{value}'" for key, value in settings.items())
        partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
        at = f"LOCATION '{location}'" if location else ""
        columns = "id bigint NOT NULL, v string"
        self.sql(f"CREATE TABLE {{}}.{name} ({columns}) USING iceberg {partitioning} {at} TBLPROPERTIES ({listed})")
        return name

    def table(self, name: str) -> IcebergTable:
        """Load a table."""
        return IcebergTable(self.lake.spark, self.name, name)

    def rows(self, low: int, high: int) -> Any:
        """Return rows with the ids of a range, whose texts are not valid folder names."""
        return self.lake.spark.range(low, high).selectExpr("id", "concat('a b%20/', id % 2) v").coalesce(1)

    def append(self, name: str, low: int, high: int) -> None:
        """Append rows with the ids of a range."""
        self.commit(name, RowChanges(stage_rows(self.table(name), self.rows(low, high))))

    def delete_by_key(self, name: str, low: int, high: int) -> None:
        """Delete rows with the ids of a range by equality deletes."""
        table = self.table(name)
        keys = self.rows(low, high).select("id", "v")
        deletes = stage_equality_deletes(table, keys, ["id", "v"], table.java.spec().specId())
        self.commit(name, RowChanges([], deletes))

    def commit(self, name: str, changes: RowChanges) -> None:
        """Commit staged files."""
        append_changes(self.table(name), changes, PositionFence(None))

    def path(self, name: str) -> Path:
        """Return the table's folder."""
        return Path(
            urlsplit(self.table(name).location.replace("%", "%25").replace("?", "%3F")).path.replace("%25", "%")
        )

    def run(self, name: str, *, now: float | None = None, documents: Path | None = None, **options: Any) -> TableReport:
        """Run the job on a table.

        :param now: the job's current time.
        :param documents: location of its documents.
        """
        spec = {
            "version": 1,
            "job": "remove_orphan_files",
            "catalog": {"name": self.name, "properties": self.properties},
            "tables": [name],
            "options": {"dry_run": False, **options},
        }
        parsed = dataclasses.replace(parse_spec(spec), documents=f"file://{documents}" if documents else None)
        return RemoveOrphanFiles(lambda: now or time.time())(self.table(name), parsed)


def age(folder: Path, seconds: float = OLD, but: str = "") -> None:
    """Make all files below a folder look that old.

    :param but: suffix of the files that keep their age.
    """
    for path in files(folder):
        if not but or not path.name.endswith(but):
            os.utime(path, (time.time() - seconds,) * 2)


def plant(folder: Path, names: Sequence[str], seconds: float = OLD) -> set[Path]:
    """Write files of this age that belong to no table."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"orphan {name}".encode())
        os.utime(path, (time.time() - seconds,) * 2)
    return {folder / name for name in names}


def files(folder: Path) -> set[Path]:
    """Return all files below a folder except the job's own."""
    return {path for path in folder.rglob("*") if path.is_file() and FOLDER not in path.parts}


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the digest and time of each of these files."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), int(path.stat().st_mtime))
        for path in files(folder)
    }
