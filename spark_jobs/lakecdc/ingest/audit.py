"""Write, audit, publish: check the staged files of a batch before they become the table's state.

The batch's rows are read from its uncommitted files. The table after the batch is read from a branch, to which the same
files are committed. A batch that passes is committed to main behind the fence, with the same files, and that commit
drops the branch, because an expiry deletes the files of a snapshot that no branch needs. A batch that fails stays on
the branch for inspection; main and the source positions do not move.
"""

from __future__ import annotations

from typing import Any

from lakecdc.checks import Checks, Verdict, describe_failures
from lakecdc.contract.checks import Check
from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.iceberg.commit import RowChanges, commit_aside
from lakecdc.iceberg.fence import KnownHead, PositionFence
from lakecdc.iceberg.refs import drop_branch
from lakecdc.iceberg.scan import TaskBuilder, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata import names


class AuditError(InputError):
    """A batch fails its checks; it stays on the branch, which owns its files.

    Remedy: Correct the rows at the source, or the checks of the target; the next run reads the batch again.
    """


class Audit:
    """The checks of one batch: of its own rows, and of the table after the batch; and their verdicts."""

    def __init__(self, checks: tuple[Check, ...], table_checks: tuple[Check, ...], *, show_values: bool) -> None:
        self._checks, self._table_checks, self._show_values = checks, table_checks, show_values
        self.verdicts: list[Verdict] = []
        # the branch's snapshot with the batch's files, which protects them from expiry
        self._aside: Snapshot | None = None

    @classmethod
    def of(cls, target: Target, *, show_values: bool) -> Audit | None:
        """Return the audit for a batch of a target; None if the target publishes without checks."""
        return cls(target.checks, target.table_checks, show_values=show_values) if target.publish else None

    def refuse_bad(self, table: IcebergTable) -> None:
        """Raise an InputError if a check does not fit the table's columns."""
        Checks(table, table.read(), (*self._checks, *self._table_checks))

    def hold(
        self,
        table: IcebergTable,
        base: Snapshot | None,
        changes: RowChanges,
        fence: PositionFence,
        truncate: Any | None,
    ) -> None:
        """Check a staged batch.

        :param base: the table's head, on which the changes are based.
        :param changes: changes to commit.
        :param fence: fence of that commit; after the checks, it refuses later commits of others.
        :param truncate: condition of rows that the commit removes first.
        :raises AuditError: a check of severity ``error`` fails.
        """
        self._aside = None
        self.verdicts = self._of_batch(table, changes)
        if self._table_checks and not self._fails:
            self._aside = commit_aside(table, changes, names.AUDIT_BRANCH, base, truncate)
            fence.head = KnownHead(base.id if base else None, truncated=truncate is not None)
            after = table.read(self._aside.id)
            checks = Checks(table, after, self._table_checks, list(table.ancestors_of(self._aside)))
            self.verdicts += checks.verdicts(show_values=self._show_values)
        if self._fails:
            if self._aside is None:
                commit_aside(table, changes, names.AUDIT_BRANCH, base, truncate)
            raise AuditError(
                f"The batch is not published: {describe_failures(self.verdicts)}.",
                table=table.name,
                hint=f"It is on the branch {names.AUDIT_BRANCH}. Correct the source or the checks, then run again.",
            )

    def drop_branch(self, table: IcebergTable, transaction: Any) -> None:
        """Drop the branch in the publishing transaction; raise a ConflictError if it lost the checked batch."""
        at = self._aside.id if self._aside else None
        drop_branch(table, transaction, names.AUDIT_BRANCH, at)

    @property
    def on_branch(self) -> bool:
        """Check whether the batch's files belong to the branch's snapshot, whose expiry deletes them."""
        return self._aside is not None

    @property
    def _fails(self) -> bool:
        return any(verdict.fails for verdict in self.verdicts)

    def _of_batch(self, table: IcebergTable, changes: RowChanges) -> list[Verdict]:
        if not self._checks or not changes.rows:
            return []
        build = TaskBuilder(table)
        with staged_tasks(table, [build.task(file) for file in changes.rows]) as group:
            return Checks(table, read_staged(table, group), self._checks).verdicts(show_values=self._show_values)
