"""Table policies applied to a job before it works on the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from lakecdc.contract.errors import UnsupportedError
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.scan import specs_losing_partitions
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.metadata.names import target_of
from lakecdc.metadata.policy import GOVERNED, permitted_options


def apply_policy(table: IcebergTable, spec: JobSpec) -> JobSpec:
    """Restrict the spec to what the current properties of the table and its owners allow.

    :raises UnsupportedError: they do not allow the job, or not yet.
    :raises SpecError: one of them cannot be read.
    :raises SourceUnavailableError: an owner table cannot be loaded.
    """
    if spec.job not in GOVERNED:
        return spec
    properties = {table.name: table.refresh().properties}
    protection = getattr(spec.options, "protection", {}).get(table.name)
    for name in {target_of(table.name), *(protection.beside if protection else ())} - {table.name}:
        if (owner := open_if_there(table.spark, table.catalog, name)) is not None:
            properties[name] = owner.refresh().properties
    options = permitted_options(spec.job, spec.options, table.name, properties, datetime.now(UTC))
    return replace(spec, options=options)


def refuse_lost_partitions(table: IcebergTable, snapshot_id: int) -> None:
    """Refuse to rewrite the manifests of a table that would lose partition values."""
    if specs_losing_partitions(table, snapshot_id):
        raise UnsupportedError(
            "It has data files of a partition spec whose column was dropped, so their manifests cannot be kept.",
            table=table.name,
            hint="Run compact_data_files first to move their rows to the current spec.",
        )


def refuse_shared_files(table: IcebergTable) -> None:
    """Refuse to delete files of a table whose property ``gc.enabled`` is false."""
    if table.properties.get("gc.enabled", "true").lower() == "false":
        raise UnsupportedError(
            "Its property gc.enabled is false, so its files may belong to other tables.",
            table=table.name,
            hint="Set it to true if they do not.",
        )
