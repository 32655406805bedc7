"""The sensor of table health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.assess_table import health_of
from airflow_provider_lakecdc.lake.tables import MAIN, read_tables
from airflow_provider_lakecdc.sensors.polling import LimitSensor, Side, check_limit

if TYPE_CHECKING:
    from pyiceberg.table import Table


class TableHealthSensor(LimitSensor):
    """Wait until the health of tables is below a score, or above.

    ``until="below"`` waits for a table with a lower score, to run maintenance when needed instead of by the clock; the
    return value is a dict of the scores of these tables, so that ``tables=sensor.output`` passes them to an operator.
    ``until="above"`` waits until no table has a lower score, before heavy readers. Tables that do not exist yet keep it
    waiting either way. Each check reads all manifests of the tables, but no data files.

    :param tables: ``namespace.name`` of each table. (templated)
    :param score: 0–100, see ``airflow lakecdc health``. (templated)
    :param until: ``below`` or ``above``. (templated)
    :param branch: the branch to read. (templated)
    """

    goal: ClassVar[str] = "scores {until} {score:g}"
    template_fields: Sequence[str] = (*LimitSensor.template_fields, "score", "branch")

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        score: float | str = 80.0,
        until: Side | str = "below",
        branch: str = MAIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, until=until, **kwargs)
        self.score = score
        self.branch = branch

    @staticmethod
    def check(
        catalog: CatalogConnection, *, tables: Sequence[str], score: float, until: Side = "below", branch: str = MAIN
    ) -> dict[str, float] | None:
        """Return the scores by table if the wait is over."""

        def read(_: str, table: Table | None) -> float | None:
            health = health_of(table, branch) if table is not None else None
            return health.score if health else None

        measured = read_tables(catalog, tables, read, lambda _, error: error)
        scores = check_limit(measured, lambda each: each < score, "Health", some=until == "below")
        return None if scores is None else {table: round(each, 1) for table, each in scores.items()}

    def check_arguments(self) -> dict[str, Any]:
        """Return tables, branch and score."""
        arguments = {**super().check_arguments(), "branch": self.branch}
        try:
            limit = float(self.score)
        except ValueError as error:
            raise AirflowFailException(f"score {self.score!r} is not a number.") from error
        if not 0 <= limit <= 100:
            raise AirflowFailException(f"Expected a score between 0 and 100, got {limit:g}.")
        return {**arguments, "score": limit}
