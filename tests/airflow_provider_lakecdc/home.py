"""An Airflow of the tests' own: importing this module points Airflow at an empty home before it reads its settings."""

from __future__ import annotations

import atexit
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
    """Make Airflow's database; once per test run, about 5 s."""
    if not (HOME / "airflow.db").exists():
        subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
