"""The rules of Airflow's retries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk import ExceptionRetryPolicy, RetryAction

from airflow_provider_lakecdc.exceptions import (
    JobBadInputError,
    JobClusterError,
    JobConflictError,
    LakecdcJobError,
)
from airflow_provider_lakecdc.submit.retry_policy import retry_policy


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("error", "action", "delay"),
    [
        (JobConflictError("x"), RetryAction.RETRY, timedelta(seconds=30)),
        (JobClusterError("x"), RetryAction.RETRY, timedelta(minutes=5)),
        (JobBadInputError("x"), RetryAction.FAIL, None),
        (LakecdcJobError("x"), RetryAction.DEFAULT, None),
        (ValueError("x"), RetryAction.DEFAULT, None),
    ],
)
def test_each_class_has_its_rule(error: Exception, action: RetryAction, delay: timedelta | None, stored: bool) -> None:
    policy = retry_policy()
    if stored:
        policy = ExceptionRetryPolicy.deserialize(policy.serialize())
    decision = policy.evaluate(error, 1, 3)
    assert (decision.action, decision.retry_delay) == (action, delay)
