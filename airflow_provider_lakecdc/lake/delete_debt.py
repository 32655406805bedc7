"""How many delete files a table's readers have to apply, read through pyiceberg."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.limits import look_at
from airflow_provider_lakecdc.lake.removable_debt import payable
from airflow_provider_lakecdc.lake.tables import MAIN, Side, branch_snapshots, open_branch, summary_of
from lakecdc.metadata.debt import DebtLimits, DeleteDebt, from_summaries

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

#: counts by table
Debts = dict[str, dict[str, int]]


def read_delete_debt(catalog: CatalogConnection, table: str, branch: str = MAIN) -> DeleteDebt | None:
    """Live delete files of a branch.

    The totals in the snapshot summaries tell it at the price of one metadata file. Where they do not, the branch's
    delete manifests are read; data manifests and files never are.

    :param table: ``namespace.name``.
    :return: None if there is no such table, or no such branch of it.
    """
    with open_branch(catalog, table, branch) as found:
        return debt_of(found, branch) if found is not None else None


def debt_of(table: Table, branch: str = MAIN) -> DeleteDebt:
    """The same of a table that is open."""
    snapshots = list(branch_snapshots(table, branch))
    told = from_summaries([summary_of(snapshot) for snapshot in snapshots])
    return told if told is not None else _counted(table, snapshots[0])


def look(
    catalog: CatalogConnection, tables: Sequence[str], branch: str, limits: DebtLimits, until: Side
) -> Debts | None:
    """Look at all tables once; see :func:`airflow_provider_lakecdc.lake.limits.look_at`.

    What a run could not pay is not waited for: equality deletes that it has to leave count for ``below`` only.

    :param until: ``above``: some table has a count above its limit; ``below``: no table has.
    :return: the counts of the tables that are waited for; None while there is more to wait for.
    :raises LakecdcJobError: if it is left to tables that cannot be read.
    """
    found = look_at(
        tables,
        lambda table: _debt(catalog, table, branch, limits, until),
        lambda debt: bool(debt.above(limits)),
        "some" if until == "above" else "none",
        "Delete debt",
    )
    return None if found is None else {table: debt.counts() for table, debt in found.items()}


def _debt(catalog: CatalogConnection, table: str, branch: str, limits: DebtLimits, until: Side) -> DeleteDebt | None:
    debt = read_delete_debt(catalog, table, branch)
    if until == "above" and debt is not None and debt.above(limits):
        return _payable(catalog, table, branch, debt)
    return debt


def _payable(catalog: CatalogConnection, table: str, branch: str, debt: DeleteDebt) -> DeleteDebt:
    with open_branch(catalog, table, branch) as found:
        head = next(branch_snapshots(found, branch), None) if found is not None else None
        return payable(found, head, debt) if found is not None and head is not None else debt


def _counted(table: Table, snapshot: Snapshot) -> DeleteDebt:
    from pyiceberg.manifest import DataFileContent, ManifestContent

    files, rows = Counter[DataFileContent](), Counter[DataFileContent]()
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io):
                files[entry.data_file.content] += 1
                rows[entry.data_file.content] += entry.data_file.record_count
    equality, position = DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES
    return DeleteDebt(files[equality], rows[equality], files[position], rows[position])
