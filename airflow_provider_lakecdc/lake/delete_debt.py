"""Delete debt: the delete files that readers of a table must apply, read through pyiceberg."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.limits import check_limit
from airflow_provider_lakecdc.lake.removable_debt import removable_debt
from airflow_provider_lakecdc.lake.tables import MAIN, Side, branch_snapshots, open_branch, summary_of
from lakecdc.metadata.debt import DebtLimits, DeleteDebt, from_summaries

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

#: counts by table
Debts = dict[str, dict[str, int]]


def read_delete_debt(catalog: CatalogConnection, table: str, branch: str = MAIN) -> DeleteDebt | None:
    """Read the live delete files of a branch.

    Usually the totals in snapshot summaries suffice, which costs one metadata file. Otherwise the branch's delete
    manifests are read; data manifests and data files never are.

    :param table: ``namespace.name``.
    :return: None if the table or its branch does not exist.
    """
    with open_branch(catalog, table, branch) as loaded:
        return debt_of(loaded, branch) if loaded is not None else None


def debt_of(table: Table, branch: str = MAIN) -> DeleteDebt:
    """Return the debt of a loaded table."""
    snapshots = list(branch_snapshots(table, branch))
    debt = from_summaries([summary_of(snapshot) for snapshot in snapshots])
    return debt if debt is not None else _count(table, snapshots[0])


def check_delete_debt(
    catalog: CatalogConnection, tables: Sequence[str], branch: str, limits: DebtLimits, until: Side
) -> Debts | None:
    """Check all tables once, see :func:`airflow_provider_lakecdc.lake.limits.check_limit`.

    Debt that no run can remove does not count: equality deletes that must stay count for ``below`` only.

    :param until: ``above``: some table has a count above its limit; ``below``: no table has.
    :return: the counts of the tables in question; None while the wait continues.
    :raises LakecdcJobError: the result depends on tables that cannot be read.
    """
    debts = check_limit(
        tables,
        lambda table: _debt(catalog, table, branch, limits, until),
        lambda debt: bool(debt.above(limits)),
        "some" if until == "above" else "none",
        "Delete debt",
    )
    return None if debts is None else {table: debt.counts() for table, debt in debts.items()}


def _debt(catalog: CatalogConnection, table: str, branch: str, limits: DebtLimits, until: Side) -> DeleteDebt | None:
    debt = read_delete_debt(catalog, table, branch)
    if until == "above" and debt is not None and debt.above(limits):
        return _removable(catalog, table, branch, debt)
    return debt


def _removable(catalog: CatalogConnection, table: str, branch: str, debt: DeleteDebt) -> DeleteDebt:
    with open_branch(catalog, table, branch) as loaded:
        head = next(branch_snapshots(loaded, branch), None) if loaded is not None else None
        return removable_debt(loaded, head, debt) if loaded is not None and head is not None else debt


def _count(table: Table, snapshot: Snapshot) -> DeleteDebt:
    from pyiceberg.manifest import DataFileContent, ManifestContent

    files, rows = Counter[DataFileContent](), Counter[DataFileContent]()
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io):
                files[entry.data_file.content] += 1
                rows[entry.data_file.content] += entry.data_file.record_count
    equality, position = DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES
    return DeleteDebt(files[equality], rows[equality], files[position], rows[position])
