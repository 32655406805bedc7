"""The operator of the job that removes orphan files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.options import Outcome


class RemoveOrphanFilesOperator(LakecdcJobOperator):
    """Looks for files that nothing in a table's metadata refers to. It is dry by default: it only tells them.

    With ``dry_run=False`` they are taken away so that they can come back, and deleted by a later run.

    :param action: ``remove`` takes orphans away and deletes what earlier runs took away; ``purge`` only deletes that;
        ``restore`` brings back what has not been deleted.
    :param min_age: seconds since a file was written before it can be an orphan; not less than three days.
    :param longest_job: seconds that the longest job takes which writes to the tables; younger files than twice that are
        left alone too.
    :param delay: seconds between taking away and deleting; not less than a day.
    :param run: id of the one run to restore or purge; default: all.
    :param approved: by table, ``uri`` and ``sha256`` of the list of a dry run: nothing else is taken away.
    :param side_tables: further tables to work on, each only if it exists, such as
        ``lakecdc.metadata.names.side_tables("shop.orders")``.
    :param protection: by table, what the configuration says of removals from it, with the fields of
        ``lakecdc.contract.protection.Protection``; a plan has it. The table's own properties hold in any case.
    :param dry_run: look and count, change nothing; the default.
    :param fail_on: outcomes that fail the task although they are not failures, such as ``skipped``.
    :param kwargs: see :class:`LakecdcJobOperator`.
    """

    job_name: ClassVar[str] = "remove_orphan_files"

    def __init__(
        self,
        *,
        action: Literal["remove", "restore", "purge"] | str = "remove",
        min_age: float | str = 3 * 24 * 3600.0,
        longest_job: float | str = 24 * 3600.0,
        delay: float | str = 7 * 24 * 3600.0,
        run: str | None = None,
        side_tables: str | Sequence[str] = (),
        approved: Mapping[str, Mapping[str, str]] | str | None = None,
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        dry_run: bool | str = True,
        fail_on: Sequence[Outcome] = (),
        **kwargs: Any,
    ) -> None:
        options = {
            "action": action,
            "min_age": min_age,
            "longest_job": longest_job,
            "delay": delay,
            "run": run,
            "side_tables": side_tables,
            "approved": approved,
            "protection": protection or {},
            "dry_run": dry_run,
            "fail_on": fail_on,
        }
        super().__init__(options=options, **kwargs)
