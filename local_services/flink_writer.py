"""The program that writes tables with Flink's Iceberg sink: ``python -m local_services.flink_writer``.

Runs in Flink's environment, which :mod:`local_services.flink` makes; its mini cluster is in this process's JVM. Each
batch of change events is one file, and the next one appears when the sink has committed the one before. A complete
table writes its expected rows to ``OUT/<table>.json``; ``OUT/<table>.failed`` explains a failure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from local_services.flink_changes import Batch, Changes
from local_services.flink_shapes import NAMESPACE, Column, Evolution, Shape, tables
from local_services.process import PATIENCE

#: batches of a table whose shape evolves half way, after the evolution
_BATCHES_AFTER = 3
#: interval between batches of an endless table
_PACE_SECONDS = 1.0
_SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "200ms",
    "rest.port": "0",
    "table.local-time-zone": "UTC",
    # Flink's repair of disordered changelogs; ours are in order
    "table.exec.sink.upsert-materialize": "NONE",
    "restart-strategy.type": "disable",
}


class WriteError(RuntimeError):
    """Flink's job ended, or did not commit its input."""


class Flink:
    """A mini cluster and the catalog it writes to.

    :param database: the SQLite file of the catalog.
    :param warehouse: its warehouse, a URI.
    """

    def __init__(self, database: Path, warehouse: str) -> None:
        table = import_module("pyflink.table")
        self._database = database
        settings = table.EnvironmentSettings.new_instance().in_streaming_mode().build()
        self.environment = table.TableEnvironment.create(settings)
        for key, value in _SETTINGS.items():
            self.environment.get_config().set(key, value)
        self.gateway = import_module("pyflink.java_gateway").get_gateway()
        self.jvm = self.gateway.jvm
        properties = {
            "uri": f"jdbc:sqlite:{database}?busy_timeout=30000",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
        }
        self.catalog = self._java_catalog(properties)
        options = {
            "type": "iceberg",
            "cache-enabled": "false",
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            **properties,
        }
        self.environment.execute_sql(f"CREATE CATALOG lake WITH ({_options(options)})")
        self.environment.execute_sql(f"CREATE DATABASE IF NOT EXISTS lake.{NAMESPACE}")

    def create(self, name: str, shape: Shape, version: int) -> None:
        """Create a table by the catalog's Java API, as Flink's SQL has no transforms."""
        schema = self.jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(_schema(shape)))
        spec = self.jvm.org.apache.iceberg.PartitionSpecParser.fromJson(schema, json.dumps(_spec(shape)))
        properties = {
            "format-version": str(version),
            "write.upsert.enabled": str(shape.upsert).lower(),
            "flink.max-continuous-empty-commits": "1000000",
            "commit.retry.num-retries": "20",
            **shape.properties,
        }
        self.catalog.createTable(self._identifier(name), schema, spec, self._map(properties))

    def evolve(self, name: str, change: Evolution) -> None:
        """Change a table according to its shape."""
        table, types = self.catalog.loadTable(self._identifier(name)), self.jvm.org.apache.iceberg.types.Types
        schema = table.updateSchema()
        for column in change.widen:
            schema = schema.updateColumn(column, types.LongType.get())
        for old, new in change.rename.items():
            schema = schema.renameColumn(old, new)
        for column in change.drop:
            schema = schema.deleteColumn(column)
        for column in change.add:
            schema = schema.addColumn(column, types.StringType.get())
        if change.key:
            schema = schema.setIdentifierFields(self.jvm.java.util.HashSet(self._list(change.key)))
        schema.commit()
        for field in change.unpartition:
            table.updateSpec().removeField(field).commit()
        if change.format_version:
            table.updateProperties().set("format-version", str(change.format_version)).commit()

    def start(self, name: str, folder: Path, columns: Sequence[Column], key: Sequence[str]) -> Any:
        """Start the job that writes the events of a folder's files to a table, one file at a time."""
        source = f"source_{name}_{folder.name}"
        listed = ", ".join(f"`{column.name}` {column.flink_type}" for column in columns)
        keys = ", ".join(f"`{column}`" for column in key)
        options = {
            "connector": "filesystem",
            "path": folder.as_uri(),
            "source.monitor-interval": "100ms",
            "format": "debezium-json",
            "debezium-json.timestamp-format.standard": "ISO-8601",
        }
        self.environment.execute_sql(
            f"CREATE TEMPORARY TABLE {source} ({listed}, PRIMARY KEY ({keys}) NOT ENFORCED) WITH ({_options(options)})"
        )
        insert = f"INSERT INTO lake.{NAMESPACE}.{name} SELECT * FROM {source}"
        return self.environment.execute_sql(insert).get_job_client()._j_job_client

    def committed_rows(self, name: str) -> int:
        """Return the number of rows a table's snapshots added, superseded ones too; 0 before the first one."""
        with closing(sqlite3.connect(self._database, timeout=30)) as connection:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
            (location,) = connection.execute(query, (NAMESPACE, name)).fetchone()
        metadata = json.loads(Path(unquote(urlsplit(location).path)).read_text())
        return sum(int(snapshot["summary"].get("added-records", 0)) for snapshot in metadata.get("snapshots", []))

    def committed_changes(self, name: str) -> int:
        """Return the number of Flink's snapshots in a table."""
        table = self.catalog.loadTable(self._identifier(name))
        return sum(1 for snapshot in table.snapshots() if "flink.job-id" in dict(snapshot.summary()))

    def stop(self, job: Any, folder: Path) -> Iterator[None]:
        """Stop a job after a last commit of its input; yields meanwhile."""
        form = self.jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
        done = job.stopWithSavepoint(True, folder.as_uri(), form)
        while not done.isDone():
            yield
        done.get()

    def _java_catalog(self, properties: dict[str, str]) -> Any:
        catalog = self.jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(self.jvm.org.apache.hadoop.conf.Configuration())
        catalog.initialize("lake", self._map(properties))
        return catalog

    def _identifier(self, name: str) -> Any:
        names = self.gateway.new_array(self.jvm.String, 2)
        names[0], names[1] = NAMESPACE, name
        return self.jvm.org.apache.iceberg.catalog.TableIdentifier.of(names)

    def _map(self, values: dict[str, str]) -> Any:
        out = self.jvm.java.util.HashMap()
        for key, value in values.items():
            out.put(key, value)
        return out

    def _list(self, values: Sequence[str]) -> Any:
        out = self.jvm.java.util.ArrayList()
        for value in values:
            out.add(value)
        return out


class Given(NamedTuple):
    """The inputs of all rows."""

    rows: int
    seed: int


class TableWriter:
    """The writer of one table, in steps, so that one thread can write several: Flink's planner is bound to its thread.

    :param version: format version of the table.
    :param folder: folder of events and expected rows; the files ``<name>.go`` and ``<name>.stop`` start
        and end an endless table.
    :param given: number of rows of the first load, and the source of all rows.
    """

    def __init__(self, flink: Flink, name: str, shape: Shape, version: int, folder: Path, given: Given) -> None:
        self._flink, self.name, self._shape, self._version = flink, name, shape, version
        self._folder, self._size, self._rows_written = folder, given.rows, 0
        self._changes = Changes(Random(f"{given.seed} {name}"), shape.make, shape.upsert, shape.required)

    def steps(self) -> Iterator[None]:
        """Write the table; yields while it waits."""
        shape, changes = self._shape, self._changes
        self._flink.create(self.name, shape, self._version)
        if shape.endless:
            while not (self._folder / f"{self.name}.go").exists():
                yield
            yield from self._write(self._paced(changes.endless(self._size)), shape.columns, shape.key, "0")
        else:
            yield from self._write(changes.batches(self._size), shape.columns, shape.key, "0")
        if shape.then:
            self._flink.evolve(self.name, shape.then)
            changes.rows = {number: shape.then.carried(row) for number, row in changes.rows.items()}
            changes.make = shape.then.make or changes.make
            columns, key = shape.then.columns or shape.columns, shape.then.key or shape.key
            yield from self._write(itertools.islice(changes.batches(0), _BATCHES_AFTER), columns, key, "1")
        _publish(self._folder / f"{self.name}.json", json.dumps(list(changes.rows.values())))

    def _paced(self, batches: Iterator[Batch]) -> Iterator[Batch | None]:
        # check before creating a batch, as the table must have all created rows
        while not (self._folder / f"{self.name}.stop").exists():
            yield next(batches)
            until = time.monotonic() + _PACE_SECONDS
            while time.monotonic() < until:
                yield None

    def _write(
        self,
        batches: Iterator[Batch] | Iterator[Batch | None],
        columns: Sequence[Column],
        key: Sequence[str],
        part: str,
    ) -> Iterator[None]:
        events = self._folder / "events" / self.name / part
        events.mkdir(parents=True)
        job = self._flink.start(self.name, events, columns, key)
        numbers = itertools.count()
        for batch in batches:
            if batch:
                yield from self._hand_over(batch, events / f"{next(numbers):05d}.json", job)
            yield
        yield from self._flink.stop(job, self._folder / "savepoints" / self.name)

    def _hand_over(self, batch: Batch, file: Path, job: Any) -> Iterator[None]:
        changes_before = self._flink.committed_changes(self.name)
        self._rows_written += sum(event["op"] != "d" for event in batch)
        _publish(file, "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in batch))
        until = time.monotonic() + PATIENCE
        while not self._has_arrived(changes_before):
            state = str(job.getJobStatus().get().toString())
            if state in ("FAILED", "CANCELED") or time.monotonic() > until:
                raise WriteError(f"{file.name} was not committed, the job is {state}. See Flink's log")
            yield

    def _has_arrived(self, changes_before: int) -> bool:
        rows = self._flink.committed_rows(self.name)
        if rows > self._rows_written:
            raise WriteError(f"Expected {self._rows_written} rows, got {rows}")
        return rows == self._rows_written and self._flink.committed_changes(self.name) > changes_before


def main() -> None:
    """Write the requested tables, a few at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=list(tables()))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    flink, shapes = Flink(arguments.database, arguments.warehouse), tables()
    writers = [
        TableWriter(flink, name, *shapes[name], arguments.out, Given(arguments.rows, arguments.seed))
        for name in arguments.tables
    ]
    write_all(writers, arguments.out, arguments.at_once)
    sys.stdout.flush()
    # the mini cluster's threads would keep the process alive
    os._exit(0)


def write_all(writers: Sequence[TableWriter], folder: Path, at_once: int) -> None:
    """Advance several tables in turn until all are written or have failed."""
    waiting = [(writer.name, writer.steps(), time.monotonic()) for writer in writers]
    running: list[tuple[str, Iterator[None], float]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append((*waiting.pop(0)[:2], time.monotonic()))
        for entry in list(running):
            name, steps, begun = entry
            try:
                next(steps)
                continue
            except StopIteration:
                print(f"{name} {time.monotonic() - begun:.1f} s", flush=True)
            except Exception as error:
                _publish(folder / f"{name}.failed", f"{type(error).__name__}: {error}")
            running.remove(entry)
        time.sleep(0.1)


def _schema(shape: Shape) -> dict[str, Any]:
    fields = [
        {"id": number, "name": column.name, "required": column.required, "type": column.type}
        for number, column in enumerate(shape.columns, 1)
    ]
    identifiers = [field["id"] for field in fields if field["name"] in shape.key]
    return {"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": identifiers}


def _spec(shape: Shape) -> dict[str, Any]:
    numbers = {column.name: number for number, column in enumerate(shape.columns, 1)}
    fields = [
        {
            "name": column if transform == "identity" else f"{column}_{transform.partition('[')[0]}",
            "transform": transform,
            "source-id": numbers[column],
            "field-id": 1000 + number,
        }
        for number, (transform, column) in enumerate(shape.partitions)
    ]
    return {"spec-id": 0, "fields": fields}


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}'='{value}'" for key, value in options.items())


def _publish(file: Path, text: str) -> None:
    """Write a file that appears complete; Flink ignores names that begin with a dot."""
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(text)
    hidden.rename(file)


if __name__ == "__main__":
    main()
