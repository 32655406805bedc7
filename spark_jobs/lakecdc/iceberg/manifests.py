"""Rewriting manifests through Iceberg's own action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.commit import told_as_conflict
from lakecdc.iceberg.jvm import jvm, listed

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

_TARGET = "commit.manifest.target-size-bytes"
#: Iceberg's default of that property
_DEFAULT_TARGET = 8 * 1024**2


@dataclass(frozen=True)
class Manifest:
    """One manifest of the head.

    :param bytes: its size.
    :param deletes: whether it lists delete files.
    """

    path: str
    spec_id: int
    bytes: int
    deletes: bool


def manifests(table: IcebergTable) -> list[Manifest]:
    """The manifests of the head, from its manifest list alone."""
    head = table.java.currentSnapshot()
    if head is None:
        return []
    return [
        Manifest(str(m.path()), int(m.partitionSpecId()), int(m.length()), str(m.content().toString()) == "DELETES")
        for m in listed(head.allManifests(table.java.io()))
    ]


def manifest_target_bytes(table: IcebergTable) -> int:
    """Size of a manifest that Iceberg aims at."""
    return int(table.properties.get(_TARGET, _DEFAULT_TARGET))


def rewrite_manifests(table: IcebergTable, spec_id: int, summary: Mapping[str, str]) -> None:
    """Rewrite the manifests of one partition spec, files of one partition side by side, in one commit.

    :param summary: entries for the snapshot summary.
    :raises ConflictError: another writer changed the manifests.
    """
    actions = jvm(table.spark).org.apache.iceberg.spark.actions.SparkActions.get(table.spark._jsparkSession)
    action = actions.rewriteManifests(table.java).specId(spec_id)
    for key, value in summary.items():
        action = action.snapshotProperty(key, value)
    with told_as_conflict(table, "The rewritten manifests were refused", "Nothing was published; run again."):
        action.execute()
    table.refresh()
