"""OpenLineage datasets that a job read and wrote, from its report.

OpenLineage is imported inside functions, as its provider is optional. Names: OpenLineage's specification, "Naming
Conventions", https://openlineage.io/docs/spec/naming.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider_lakecdc.lake.tables import open_table
from lakecdc.contract.past import ExportChangesOptions, RestoreMomentOptions, Scd2Options
from lakecdc.contract.sources import Source
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.iceberg import IcebergSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.target import Target

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from lakecdc.contract.report import JobReport, TableReport
    from lakecdc.contract.spec import JobSpec

# jobs that write only repairs
_READERS = ("reconcile", "check_tables")
_READ_WHAT_THEY_NAME = (*_READERS, "export_changes")
# the first of these in a report is the number of rows or files written
_ROWS = ("rows_written", "rows")
_FILES = ("data_files", "data_files_added", "files_written")
#: namespace and name of a dataset
Name = tuple[str, str]
_GLOB = re.compile(r"(?<![^/])[^/*?\[{]*[*?\[{].*")
_JDBC = {"postgresql": ("postgres", 5432), "mysql": ("mysql", 3306)}


def lineage_of(report: JobReport, spec: JobSpec, catalog: CatalogConnection) -> OperatorLineage[Any, Any]:
    """Return the datasets that a job read and wrote; unchanged tables were not written, and dry runs do neither.

    :param report: the job's report, of a failed job too, without planned changes of dry runs.
    :param catalog: the tables' catalog; table metadata are read.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    inputs, outputs = dict[Name, Any](), dict[Name, Any]()
    for table in report.tables:
        named = (s for s in spec.steps if s.job == table.job and table.table in (*s.tables, *s.side_tables))
        step = next(named, spec)
        # a table may have changed even if it failed after a commit
        is_unchanged = table.outcome != "done" and table.snapshot_after in (None, table.snapshot_before)
        if step.job not in _READERS and is_unchanged:
            continue
        inputs |= {(read.namespace, read.name): read for read in _inputs(step, table, catalog)}
        outputs |= {(written.namespace, written.name): written for written in _outputs(step, table, catalog)}
    return OperatorLineage(inputs=[*inputs.values()], outputs=[*outputs.values()])


def _inputs(spec: JobSpec, table: TableReport, catalog: CatalogConnection) -> Iterator[InputDataset]:
    from openlineage.client.event_v2 import InputDataset

    if (target := _target_of(spec, table.table)) is not None:
        for named in source_names(spec.source, target, table.table, table.metrics):
            yield InputDataset(*named)
    for name in _tables_read(spec, table.table):
        version = table.snapshot_after if name == table.table else None
        if dataset := _dataset(catalog, name, version):
            yield InputDataset(dataset.namespace, dataset.name, facets=dataset.facets)


def _target_of(spec: JobSpec, table: str) -> Target | None:
    """Return the target of a table, which may be a pattern; None for an aggregated table."""
    if any(target.table == table for target in spec.aggregated):
        return None
    exact = (target for target in spec.targets if target.table == table)
    return next(exact, next((target for target in spec.targets if target.is_pattern), None))


def _tables_read(spec: JobSpec, table: str) -> list[str]:
    options, target = spec.options, _target_of(spec, table)
    if isinstance(options, Scd2Options | RestoreMomentOptions | ExportChangesOptions):
        own = [table] if spec.job in _READ_WHAT_THEY_NAME else []
        return [*own, *([options.history_tables[table]] if table in options.history_tables else [])]
    made_of = [str(target.history_table) for target in spec.aggregated if target.table == table]
    compared = target.source_table if target is not None and isinstance(spec.source, IcebergSource) else None
    return [*([table] if spec.job in _READ_WHAT_THEY_NAME else []), *([compared] if compared else []), *made_of]


def _outputs(spec: JobSpec, table: TableReport, catalog: CatalogConnection) -> Iterator[OutputDataset]:
    from openlineage.client.event_v2 import OutputDataset

    name, version, metrics, options = table.table, table.snapshot_after, table.metrics, spec.options
    if spec.job in _READERS and not metrics.get("repaired"):
        return
    if isinstance(options, ExportChangesOptions):
        destination = options.destinations[name]
        if destination.folder is not None:
            yield OutputDataset(*place_name(destination.folder), outputFacets=_statistics(metrics))
            return
        name, version = str(destination.table), metrics.get("exported_as")
    elif isinstance(options, Scd2Options):
        name, version = options.dimensions[name], None
    elif isinstance(options, RestoreMomentOptions) and name in options.into:
        name, version = options.into[name], metrics.get("snapshot")
    written = [(name, version, metrics)]
    target = _target_of(spec, table.table)
    if target and target.history_table and not target.is_pattern and metrics.get("history_rows"):
        history = {"rows_written": metrics["history_rows"], "data_files": metrics["history_data_files"]}
        written.append((target.history_table, None, history))
    for name, version, numbers in written:
        if of := _dataset(catalog, name, version):
            yield OutputDataset(of.namespace, of.name, facets=of.facets, outputFacets=_statistics(numbers))


def _dataset(catalog: CatalogConnection, table: str, version: Any) -> Dataset | None:
    """Return a table with its columns, named by location as in OpenLineage's Spark integration; None if it is gone."""
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset, symlinks_dataset

    with open_table(catalog, table) as loaded:
        if loaded is None:
            return None
        columns = [
            schema_dataset.SchemaDatasetFacetFields(name=field.name, type=str(field.field_type), description=field.doc)
            for field in loaded.schema().fields
        ]
        location = loaded.location()
    identifier = symlinks_dataset.Identifier(namespace=_catalog_name(catalog.references), name=table, type="TABLE")
    facets: dict[str, Any] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
        "symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier]),
    }
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(version))
    namespace, name = place_name(location)
    return Dataset(namespace, name, facets=facets)


def _catalog_name(properties: Mapping[str, Any]) -> str:
    """Return a catalog's address without login, or its warehouse if the address is secret."""
    uri = properties.get("uri")
    return re.sub("//[^/]*@", "//", uri).partition("?")[0] if isinstance(uri, str) else str(properties.get("warehouse"))


def _statistics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facet of written rows, bytes and files; empty if the job does not report them."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    rows, files = ([metrics[name] for name in names if name in metrics] for names in (_ROWS, _FILES))
    if not files:
        return {}
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=rows[0] if rows else None, size=metrics.get("bytes_written"), fileCount=files[0]
    )
    return {"outputStatistics": statistics}


def source_names(source: Source | None, target: Target, table: str, metrics: Mapping[str, Any]) -> list[Name]:
    """Return the datasets that a table is fed from or compared with; empty if the specification has no name for them.

    :param table: differs from the target's if that is a pattern.
    :param metrics: of the table's report; its position names the topics read.
    """
    if isinstance(source, KafkaSource):
        topics = metrics.get("position", {}).get("topics", source.topics)
        # a cluster is named by its first broker
        return [(f"kafka://{source.bootstrap_servers.split(',')[0].strip()}", topic) for topic in topics]
    if isinstance(source, FilesSource):
        paths = [source.path] if isinstance(source.path, str) else source.path
        return [place_name(_GLOB.sub("", path)) for path in paths]
    if (name := _table_at_source(target, table)) is None:
        return []
    if isinstance(source, PostgresSource):
        return [_postgres_name(source, name)]
    if isinstance(source, MysqlSource):
        schema = source.database if source.database and "." not in (target.source_table or "") else name[0]
        return [(f"mysql://{source.host}:{source.port}", f"{schema}.{name[1]}")]
    return _jdbc_names(source.url, name) if isinstance(source, JdbcSource) else []


def place_name(location: str) -> Name:
    """Return the name of a file or folder by path or URI: the store is the namespace, the path in it the name."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return "file", unquote(parts.path).rstrip("/") or "/"
    return f"{re.sub('^s3[an]$', 's3', parts.scheme)}://{parts.netloc}", parts.path.strip("/") or "/"


def _table_at_source(target: Target, table: str) -> tuple[str, str] | None:
    """Return schema and name of a table at the source; None if the schema is unknown."""
    if target.is_pattern:
        pattern = (
            re.escape(target.table).replace(r"\{schema\}", r"(?P<schema>.+)").replace(r"\{table\}", "(?P<table>.+)")
        )
        match = re.fullmatch(pattern, table)
        parts = match.groupdict() if match else {}
        return (parts["schema"], parts["table"]) if {"schema", "table"} <= set(parts) else None
    namespace, name = table.split(".")[-2:]
    schema, dot, source_table = (target.source_table or name).rpartition(".")
    return (schema if dot else namespace, source_table)


def _postgres_name(source: PostgresSource, name: tuple[str, str]) -> Name:
    from psycopg.conninfo import conninfo_to_dict

    address = conninfo_to_dict(source.dsn)
    host, port = (str(address.get(key) or default).split(",")[0] for key, default in _LIBPQ.items())
    return f"postgres://{host}:{port}", ".".join([str(address.get("dbname") or address.get("user") or ""), *name])


def _jdbc_names(url: str, name: tuple[str, str]) -> list[Name]:
    parts = urlsplit(url.removeprefix("jdbc:"))
    if parts.scheme not in _JDBC:
        return []
    scheme, port = _JDBC[parts.scheme]
    within = [parts.path.strip("/"), *name] if scheme == "postgres" else list(name)
    return [(f"{scheme}://{parts.hostname}:{parts.port or port}", ".".join(within))]


_LIBPQ = {"host": "localhost", "port": "5432"}
