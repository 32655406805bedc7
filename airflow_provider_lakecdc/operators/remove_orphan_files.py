"""The operator of the job that removes orphan files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class RemoveOrphanFilesOperator(LakecdcJobOperator):
    """Looks for files that nothing in a table's metadata refers to. It is dry by default: it only tells them.

    With ``dry_run=False`` they are taken away so that they can come back, and deleted by a later run.

    :param action: ``remove`` takes orphans away so that they can come back, and deletes what earlier runs took away;
        ``purge`` only deletes that; ``restore`` brings back what has not been deleted.
    :param min_age: seconds since a file was written before it can be an orphan; not less than three days.
    :param longest_job: seconds that the longest job takes which writes to the tables; younger files than twice that are
        left alone too.
    :param delay: seconds between taking away and deleting; not less than a day.
    :param run: id of the one run to restore or purge, as its report tells; default: all.
    :param approved: by table, ``uri`` and ``sha256`` of the list of a dry run, as its metric ``findings`` has them:
        only what the job finds again and the list names is removed. A changed list is refused, and so is a table
        without one. Default: no approval is needed.
    :param protection: by table, what the configuration says of removals from it. The table's own properties
        ``lakecdc.policy.…`` hold as well, whether it is given or not.
    :param side_tables: ``namespace.name`` of tables to work on after the spec's, each only if it exists: those that
        ingestion keeps beside its targets once it has a reason (``lakecdc.metadata.names.side_tables``).
    :param dry_run: look and count, change nothing, whatever the action.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "remove_orphan_files"

    def __init__(
        self,
        *,
        action: Literal["remove", "restore", "purge"] | str = "remove",
        min_age: float | str = 259_200.0,
        longest_job: float | str = 86_400.0,
        delay: float | str = 604_800.0,
        run: str | None = None,
        approved: Mapping[str, Mapping[str, Any]] | str | None = None,
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = True,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "action": action,
            "min_age": min_age,
            "longest_job": longest_job,
            "delay": delay,
            "run": run,
            "approved": approved,
            "protection": protection or {},
            "side_tables": side_tables,
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
