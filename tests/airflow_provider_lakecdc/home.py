"""An Airflow of the tests' own: importing this module points Airflow at an empty home before it reads its settings."""

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
        # two tables more in every catalog, which the tests of the audit alone look at
        "AIRFLOW__LAKECDC__AUDIT": "False",
    }
)
# what the machine's own Airflow or demo may have left behind
for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_") or name == "LAKECDC_CONFIG"]:
    del os.environ[name]


def migrate() -> None:
    """Make Airflow's database: a copy of the one that the first process with the same packages makes in some 5 s."""
    if (HOME / "airflow.db").exists():
        return
    lock = hashlib.sha256((REPOSITORY / "requirements.lock").read_bytes()).hexdigest()[:16]
    made = REPOSITORY / "build" / f"airflow-{lock}.db"
    made.parent.mkdir(exist_ok=True)
    with made.with_suffix(".lock").open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if not made.exists():
            subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
            shutil.copyfile(HOME / "airflow.db", made.with_suffix(".new")).rename(made)
    shutil.copyfile(made, HOME / "airflow.db")
