"""A separate Airflow for tests: importing this module points Airflow at an empty home before it reads its settings."""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
HOME = Path(tempfile.mkdtemp(prefix="lakecdc-airflow-"))
DAGS = HOME / "dags"
DAGS.mkdir()
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

os.environ.update(
    {
        "AIRFLOW_HOME": str(HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(HOME / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
        # additional tables in every catalog, which only the tests of the audit use
        "AIRFLOW__LAKECDC__AUDIT": "False",
    }
)
# leftovers of the machine's own Airflow or demo
for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_") or name == "LAKECDC_CONFIG"]:
    del os.environ[name]


def migrate() -> None:
    """Create Airflow's database as a copy of the one the first process with the same packages creates in some 5 s."""
    if (HOME / "airflow.db").exists():
        return
    lock = hashlib.sha256((REPOSITORY / "requirements.lock").read_bytes()).hexdigest()[:16]
    template = REPOSITORY / "build" / f"airflow-{lock}.db"
    template.parent.mkdir(exist_ok=True)
    with template.with_suffix(".lock").open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if not template.exists():
            subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
            shutil.copyfile(HOME / "airflow.db", template.with_suffix(".new")).rename(template)
    shutil.copyfile(template, HOME / "airflow.db")
