"""The DAG that replays quarantined messages on demand."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_provider_lakecdc.operators.replay_quarantine import ReplayQuarantineOperator
from airflow_provider_lakecdc.templates import params
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.schedules import REPLAY
from airflow_provider_lakecdc.templates.steps import feeding_step, finish, new_dag

_DOC = """
Replays quarantined messages of **{tables}** after the feed or the table has been corrected. They keep their order, so
an old one never overwrites a newer state; what still cannot be applied stays.

It runs when triggered on this page or with a button of the page *Lakehouse*.
"""


def replay_quarantine_dag(config: LakeConfig) -> DAG:
    """Create the DAG that replays quarantined messages of the target tables; it has no schedule.

    :param config: has ``source`` and ``targets``, as the ingest DAG.
    :raises ValueError: either is missing.
    """
    if not config.source or not config.targets:
        raise ValueError("The DAG that replays the quarantine needs a source and at least one target.")
    doc = _DOC.format(tables=", ".join(config.target_tables))
    quarantine = config.job_options("ingest", "ingest").get("quarantine_table")
    options = config.job_options("ingest", "replay_quarantine", quarantine_table=quarantine)
    text = "Replay only messages that broke these rules, such as type; leave it empty for all."
    rules = Param(None, type=["null", "array"], items={"type": "string"}, title="Rules", description=text)
    with new_dag(config, REPLAY, doc, params.run_params(config.target_tables) | {"rules": rules}) as dag:
        finish([feeding_step(ReplayQuarantineOperator, config, options, 0, rules=params.RULES)])
    return dag
