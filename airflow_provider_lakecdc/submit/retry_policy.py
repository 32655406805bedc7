"""The retry policy that goes with the operators' failures."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError, JobConflictError

#: a lost race is over as soon as the other writer has committed
CONFLICT_RETRY_DELAY = timedelta(seconds=30)
#: a cluster that was full or away needs longer
CLUSTER_RETRY_DELAY = timedelta(minutes=5)


def retry_policy(
    conflict_delay: timedelta = CONFLICT_RETRY_DELAY, cluster_delay: timedelta = CLUSTER_RETRY_DELAY
) -> ExceptionRetryPolicy:
    """Conflicts retry soon, bad input fails at once, everything else keeps the task's own ``retry_delay``.

    A policy can only shorten what ``retries`` of the task allows, so give the task a few.

    :param conflict_delay: wait after a commit conflict.
    :param cluster_delay: wait after a failure of the cluster, the source or the catalog.
    """
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(JobBadInputError, RetryAction.FAIL, reason="bad input: a retry would repeat it"),
            RetryRule(JobConflictError, RetryAction.RETRY, conflict_delay, "commit conflict: retrying soon"),
            RetryRule(JobClusterError, RetryAction.RETRY, cluster_delay, "cluster trouble: retrying later"),
        ]
    )
