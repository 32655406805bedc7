"""What a job has read and written, as OpenLineage's datasets, from the job's report.

Everything of OpenLineage is imported inside functions: its provider need not be installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.tables import open_table
from airflow_provider_lakecdc.observe.lineage_sources import Name, place_name, source_names
from airflow_provider_lakecdc.submit.reporting import without_plans
from lakecdc.contract.exporting import ExportChangesOptions
from lakecdc.contract.past import RestoreMomentOptions, Scd2Options
from lakecdc.contract.sources.iceberg import IcebergSource

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from lakecdc.contract.report import JobReport, TableReport
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target

# jobs that write to no table, but for rows that are repaired
_READERS = ("reconcile", "check_tables")
_READ_WHAT_THEY_NAME = (*_READERS, "export_changes")
# the first of these that a report has tells what was written
_ROWS = ("rows_written", "rows")
_FILES = ("data_files", "data_files_added", "files_written")


def lineage_of(report: JobReport, spec: JobSpec, catalog: CatalogConnection) -> OperatorLineage[Any, Any]:
    """Datasets that a job has read and written. What has not changed was not written; a dry run has done neither.

    :param report: of the job, whether it has failed or not.
    :param spec: of the same try.
    :param catalog: of the tables; their metadata are read.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    inputs, outputs = dict[Name, Any](), dict[Name, Any]()
    for table in without_plans(report, spec).tables:
        step = _step_of(spec, table)
        if step.job not in _READERS and not _has_changed(table):
            continue
        inputs |= {(read.namespace, read.name): read for read in _inputs(step, table, catalog)}
        outputs |= {(written.namespace, written.name): written for written in _outputs(step, table, catalog)}
    return OperatorLineage(inputs=[*inputs.values()], outputs=[*outputs.values()])


def _step_of(spec: JobSpec, table: TableReport) -> JobSpec:
    steps = (step for step in spec.steps if step.job == table.job and table.table in (*step.tables, *step.side_tables))
    return next(steps, spec)


def _has_changed(table: TableReport) -> bool:
    """Also of a table that has failed after it had committed something."""
    after = table.snapshot_after
    return table.outcome == "done" or (after is not None and after != table.snapshot_before)


def _inputs(spec: JobSpec, table: TableReport, catalog: CatalogConnection) -> Iterator[InputDataset]:
    from openlineage.client.event_v2 import InputDataset

    if (target := _target_of(spec, table.table)) is not None:
        for named in source_names(spec.source, target, table.table, table.metrics):
            yield InputDataset(*named)
    for name in _tables_read(spec, table.table):
        version = table.snapshot_after if name == table.table else None
        if found := _dataset(catalog, name, version):
            yield InputDataset(found.namespace, found.name, facets=found.facets)


def _target_of(spec: JobSpec, table: str) -> Target | None:
    """The target that a table belongs to, which may stand for many."""
    exact = (target for target in spec.targets if target.table == table)
    return next(exact, next((target for target in spec.targets if target.is_pattern), None))


def _tables_read(spec: JobSpec, table: str) -> list[str]:
    options, target = spec.options, _target_of(spec, table)
    if isinstance(options, Scd2Options | RestoreMomentOptions | ExportChangesOptions):
        own = [table] if spec.job in _READ_WHAT_THEY_NAME else []
        return [*own, *([options.history_tables[table]] if table in options.history_tables else [])]
    compared = target.source_table if target is not None and isinstance(spec.source, IcebergSource) else None
    return [*([table] if spec.job in _READ_WHAT_THEY_NAME else []), *([compared] if compared else [])]


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
    if found := _dataset(catalog, name, version):
        yield OutputDataset(found.namespace, found.name, facets=found.facets, outputFacets=_statistics(metrics))
    target = _target_of(spec, table.table)
    if target and target.history_table and not target.is_pattern and metrics.get("history_rows"):
        beside = {"rows_written": metrics["history_rows"], "data_files": metrics["history_data_files"]}
        if found := _dataset(catalog, target.history_table, None):
            yield OutputDataset(found.namespace, found.name, facets=found.facets, outputFacets=_statistics(beside))


def _dataset(catalog: CatalogConnection, table: str, version: Any) -> Dataset | None:
    """A table with its columns, named by its location as OpenLineage's Spark integration names it; None if it is gone.

    :param version: id of a snapshot.
    """
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset, symlinks_dataset

    with open_table(catalog, table) as found:
        if found is None:
            return None
        columns = [
            schema_dataset.SchemaDatasetFacetFields(name=field.name, type=str(field.field_type), description=field.doc)
            for field in found.schema().fields
        ]
        location = found.location()
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
    """Address of a catalog without a login, or its warehouse where the address is a secret."""
    uri = properties.get("uri")
    return re.sub("//[^/]*@", "//", uri).partition("?")[0] if isinstance(uri, str) else str(properties.get("warehouse"))


def _statistics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Rows, bytes and files that were written; empty where the job does not tell."""
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    rows, files = ([metrics[name] for name in names if name in metrics] for names in (_ROWS, _FILES))
    if not files:
        return {}
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=rows[0] if rows else None, size=metrics.get("bytes_written"), fileCount=files[0]
    )
    return {"outputStatistics": statistics}
