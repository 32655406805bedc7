"""The retry policy for the operators' failures."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError, JobConflictError

#: another writer's commit is usually done after this time
CONFLICT_RETRY_DELAY = timedelta(seconds=30)
#: an unavailable cluster needs longer
CLUSTER_RETRY_DELAY = timedelta(minutes=5)


def retry_policy(
    conflict_delay: timedelta = CONFLICT_RETRY_DELAY, cluster_delay: timedelta = CLUSTER_RETRY_DELAY
) -> ExceptionRetryPolicy:
    """Return a policy: conflicts retry soon, bad input never, everything else after the task's own ``retry_delay``.

    The policy cannot add to the task's ``retries``, so set some.

    :param conflict_delay: wait after a commit conflict.
    :param cluster_delay: wait after a failure of the cluster, the source or the catalog.
    """
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(JobBadInputError, RetryAction.FAIL, reason="bad input: a retry would fail the same way"),
            RetryRule(JobConflictError, RetryAction.RETRY, conflict_delay, "commit conflict: retrying soon"),
            RetryRule(JobClusterError, RetryAction.RETRY, cluster_delay, "cluster unavailable: retrying later"),
        ]
    )
