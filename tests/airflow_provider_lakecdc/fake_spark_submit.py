"""Fake spark-submit: record the call and leave the requested report.

The folder FAKE_SPARK contains ``behaviour.json`` (what to do) and receives ``calls.jsonl`` (the recorded calls).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

folder = Path(os.environ["FAKE_SPARK"])
arguments = sys.argv[1:]
spec_path = Path(urlsplit(arguments[arguments.index("--spec") + 1]).path)
report_path = Path(urlsplit(arguments[arguments.index("--report") + 1]).path)
spec = json.loads(spec_path.read_text())
tables = spec["tables"] or [target["table"] for target in spec.get("target", [])]
PREFIXES = ("LAKECDC_", "PYSPARK_")
call = {
    "arguments": arguments,
    "spec": spec,
    "environment": {key: value for key, value in os.environ.items() if key.startswith(PREFIXES)},
}
with (folder / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(call) + "\n")

behaviour = json.loads((folder / "behaviour.json").read_text())
for line in behaviour["output"]:
    print(line)
if behaviour["report"] is not None:
    outcomes = behaviour["report"]["tables"]
    # an unmentioned side table does not exist
    tables += [table for table in spec["options"].get("side_tables", []) if table in outcomes]
    steps = [
        {**outcomes.get(f"{step['job']} {table}", {}), "table": table, "job": step["job"]}
        for step in spec["options"].get("steps", [])
        for table in step.get("tables", tables)
    ]
    report = {
        "version": 1,
        "job": spec["job"],
        "started_at": "2026-01-01T00:00:00.000+00:00",
        "finished_at": "2026-01-01T00:00:09.000+00:00",
        "spark_application_id": "local-1",
        "tables": [
            {
                "outcome": "done",
                "snapshot_before": "9007199254740993",
                "snapshot_after": "9007199254740995",
                "metrics": {"rows": 3},
                **facts,
            }
            for facts in steps or [{"table": table, **outcomes.get(table, {})} for table in tables]
        ],
    }
    report.update({key: value for key, value in behaviour["report"].items() if key != "tables"})
    text = behaviour["report"].get("text") or json.dumps(report)
    report_path.write_text(text)
sys.exit(behaviour["exit"])
