"""How many delete files a table's readers have to apply, read through pyiceberg."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.payable import payable
from airflow_provider_lakecdc.tables import MAIN, Side, branch_snapshots, open_table, summary_of
from lakecdc.metadata.debt import DebtLimits, DeleteDebt, from_summaries

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)

#: counts by table
Debts = dict[str, dict[str, int]]


def read_delete_debt(catalog: CatalogConnection, table: str, branch: str = MAIN) -> DeleteDebt | None:
    """Live delete files of a branch.

    The totals in the snapshot summaries tell it at the price of one metadata file. Where they do not, the branch's
    delete manifests are read; data manifests and files never are.

    :param table: ``namespace.name``.
    :return: None if there is no such table, or no such branch of it.
    """
    with open_table(catalog, table) as found:
        if found is None or (branch != MAIN and branch not in found.metadata.refs):
            return None
        return debt_of(found, branch)


def debt_of(table: Table, branch: str = MAIN) -> DeleteDebt:
    """The same of a table that is open."""
    snapshots = list(branch_snapshots(table, branch))
    told = from_summaries([summary_of(snapshot) for snapshot in snapshots])
    return told if told is not None else _counted(table, snapshots[0])


def satisfied(debts: Mapping[str, DeleteDebt | None], limits: DebtLimits, until: Side) -> Debts | None:
    """Tell whether the wait for a side of the limits is over.

    :param debts: by table; None for a table that does not exist, which is neither above nor below.
    :param until: ``above``: some table has a count above its limit; ``below``: no table has.
    :return: for ``above`` the counts of the tables that are above a limit, for ``below`` those of all tables; None
        while there is more to wait for.
    """
    above = {name: debt.counts() for name, debt in debts.items() if debt is not None and debt.above(limits)}
    if until == "above":
        return above or None
    if above or None in debts.values():
        return None
    return {name: debt.counts() for name, debt in debts.items() if debt is not None}


def look(
    catalog: CatalogConnection, tables: Sequence[str], branch: str, limits: DebtLimits, until: Side
) -> Debts | None:
    """Look at all tables once; see :func:`satisfied`.

    What a run could not pay is not waited for: equality deletes that it has to leave count for ``below`` only. A table
    that cannot be read leaves it to the others as long as these tell how the wait goes on.

    :raises LakecdcJobError: if it is left to tables that cannot be read.
    """
    debts: dict[str, DeleteDebt | None] = {}
    failed: dict[str, Exception] = {}
    for name in tables:
        try:
            debts[name] = _debt(catalog, name, branch, limits, until)
        except Exception as error:
            log.warning("%s cannot be read", name, exc_info=error)
            failed[name] = error
    found = satisfied(debts, limits, until)
    if failed and (not debts or (until == "below" and found is not None)):
        told = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise LakecdcJobError(f"Delete debt cannot be read. {told}") from next(iter(failed.values()))
    return found


def _debt(catalog: CatalogConnection, table: str, branch: str, limits: DebtLimits, until: Side) -> DeleteDebt | None:
    debt = read_delete_debt(catalog, table, branch)
    if until == "above" and debt is not None and debt.above(limits):
        return _payable(catalog, table, branch, debt)
    return debt


def _payable(catalog: CatalogConnection, table: str, branch: str, debt: DeleteDebt) -> DeleteDebt:
    with open_table(catalog, table) as found:
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
