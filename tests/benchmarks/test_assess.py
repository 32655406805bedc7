"""A catalog of many tables is assessed and planned, and only tables that need work are chosen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.assess import make

TABLES, NEEDY = 500, 25
# in a separate process, since another test may have started Spark in this one
TASKS = """
import json, sys
from pathlib import Path
from benchmarks.assess import assess_and_plan
found = assess_and_plan(Path(sys.argv[1]))
print(json.dumps([found, [name for name in ("pyspark", "py4j") if name in sys.modules]]))
"""


def test_only_tables_that_need_work_are_chosen_and_no_spark_is_started(tmp_path: Path) -> None:
    make(tmp_path, TABLES, NEEDY)
    done = subprocess.run([sys.executable, "-c", TASKS, str(tmp_path)], check=True, stdout=subprocess.PIPE, text=True)
    (task,), spark = json.loads(done.stdout.splitlines()[-1])
    assert spark == []
    assert task["rewrite_delete_files"] == {}
    needy = [f"bench.t{number}" for number in range(0, TABLES, TABLES // NEEDY)]
    assert sorted(task["compact_data_files"]["tables"]) == sorted(needy)
    assert task["compact_data_files"]["predicted_core_seconds"]["compact_data_files"].keys() == set(needy)
