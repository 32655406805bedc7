"""The operator of the job that enters quarantined messages again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecdc.operators.ingest import IngestOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReplayQuarantineOperator(IngestOperator):
    """Enters messages again that could not be applied, after the feed or the target has been corrected.

    It takes the source and targets of the ingest task as they are now. Messages keep the order key they had, so that
    an old one never overwrites a newer state; what can be applied leaves the quarantine, the rest stays.

    :param rules: enter only messages that broke one of these rules, such as ``type``; default: all.
    :param kwargs: see :class:`IngestOperator`.
    """

    job_name: ClassVar[str] = "replay_quarantine"

    def __init__(
        self, *, rules: Sequence[str] = (), max_quarantined_fraction: float | str = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(max_quarantined_fraction=max_quarantined_fraction, **kwargs)
        self.options["rules"] = list(rules)

    def check_run(self, context: Context) -> None:
        """Any run may replay: the messages are what waits now, whatever the data interval."""
