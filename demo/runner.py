"""The process that runs DAGs for :mod:`demo.dags`: requests and answers are lines of JSON.

It is a separate process because Airflow reads its environment on import, and a single one because importing Airflow
takes longer than scheduling.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_START = re.compile(r"\[DAG TEST\] starting task_id=(\S+) map_index=(\S+)")
_END = re.compile(r"\[DAG TEST\] end task")


def main() -> None:
    """Answer requests until standard input ends."""
    # output of Airflow and Spark goes to the run's log; answers use a copy of standard output
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        with open(request["log"], "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        print(json.dumps(run(request)), file=answers, flush=True)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run one DAG for one logical date, as a DAG run in Airflow's database.

    :param request: ``dag_id``, ``dag_file``, ``logical_date`` (ISO-8601) and ``log``, the file all output goes to.
    :return: ``state`` of the run, ``tasks`` with their states, ``reports`` of the jobs by task.
    """
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(request["dag_file"])
    if bag.import_errors or request["dag_id"] not in bag.dags:
        print(*bag.import_errors.values(), sep="\n", flush=True)
        return {"state": "import error", "tasks": {}, "reports": {}}
    moment, began = datetime.fromisoformat(request["logical_date"]), datetime.now(UTC)
    dag_run = bag.dags[request["dag_id"]].test(logical_date=moment, run_after=moment)
    instances = sorted(dag_run.get_task_instances(), key=lambda ti: str(ti.start_date))
    _set_start(dag_run, began)
    sys.stdout.flush()
    _split_log(Path(request["log"]), request["dag_id"], dag_run.run_id)
    return {
        "state": str(dag_run.state),
        "tasks": {ti.task_id: str(ti.state) for ti in instances},
        "reports": {
            ti.task_id: ti.xcom_pull(task_ids=ti.task_id, map_indexes=ti.map_index, key="report") for ti in instances
        },
    }


def _set_start(dag_run: Any, began: datetime) -> None:
    """Set the run's start date, for which ``DAG.test`` uses the logical date."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(update(DagRun).where(DagRun.id == dag_run.id).values(start_date=began))


def _split_log(log: Path, dag_id: str, run_id: str) -> None:
    """Write each task's part of the output to its log on Airflow's web page, which ``DAG.test`` does not."""
    base = Path(os.environ["AIRFLOW_HOME"], "logs", f"dag_id={dag_id}", f"run_id={run_id}")
    for task, index, text in split_by_task(log.read_text(errors="replace")):
        folder = base / f"task_id={task}" / (f"map_index={index}" if index != "-1" else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "attempt=1.log").write_text(text)


def split_by_task(text: str) -> Iterator[tuple[str, str, str]]:
    """Split the output of a run into the parts of its tasks.

    :return: task id, map index and text of each.
    """
    task: tuple[str, str] | None = None
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if start := _START.search(line):
            task, lines = (start[1], start[2]), []
        elif task and _END.search(line):
            yield *task, "".join(lines)
            task = None
        elif task:
            lines.append(line)


if __name__ == "__main__":
    main()
