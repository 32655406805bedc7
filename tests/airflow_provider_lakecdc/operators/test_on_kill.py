"""Killing a task ends its submitted job."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from tests.airflow_provider_lakecdc.conftest import FakeSpark


@pytest.mark.usefixtures("lake")
def test_the_submit_process_ends(spark_submit: FakeSpark, context: Any) -> None:
    (spark_submit.folder / "spark-submit").write_text("#!/bin/sh\necho started $$\nexec sleep 600\n")
    operator = ExpireSnapshotsOperator(task_id="t", catalog_conn_id="lake", tables=["shop.orders"])
    started = threading.Event()

    def kill_once_it_runs() -> None:
        hook = _wait_for(lambda: operator._hook and operator._hook._last_submit_log_lines and operator._hook)
        processes.append(int(hook._last_submit_log_lines[-1].split()[1]))
        started.set()
        operator.on_kill()

    processes: list[int] = []
    killer = threading.Thread(target=kill_once_it_runs)
    killer.start()
    with pytest.raises(LakecdcJobError, match="left no report"):
        operator.execute(context)
    killer.join(timeout=30)
    assert started.is_set()
    assert not Path(f"/proc/{processes[0]}").exists()


def _wait_for(condition: Any) -> Any:
    pause = threading.Event()
    for _ in range(3000):
        if value := condition():
            return value
        pause.wait(0.01)
    raise AssertionError("The fake spark-submit was not started.")
