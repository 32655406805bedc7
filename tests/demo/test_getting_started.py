"""The page for a new user, run as it is printed: its blocks, one after another, in one shell and an empty home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from local_services.airflow import served_at
from local_services.paths import REPOSITORY, reachable_folder
from local_services.postgres import Postgres
from local_services.process import free_port
from local_services.setup_program import setup_program

PAGE = (REPOSITORY / "docs" / "start" / "getting-started.md").read_text()
_BLOCK = re.compile(r"^```bash (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
KINDS = ("hourly_governance", "ingest", "nightly_governance", "replay_quarantine", "weekly_governance")
DAGS = [f"lakecdc_{kind}" for kind in KINDS]
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print(json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors}))
"""
# what the page leaves to the reader's patience: the web page is there and shows the DAGs; the first run is done
_SERVED = """
until python -c "import urllib.request as u; u.urlopen('$AIRFLOW__API__BASE_URL/api/v2/monitor/health')" 2> /dev/null
do sleep 2; done
until airflow dags list -o plain 2> /dev/null | grep -q lakecdc_ingest; do sleep 2; done
"""
_LOADED = """
until airflow dags list-runs lakecdc_ingest -o json > runs.json && grep -q '"state": "success"' runs.json; do
  if grep -q '"state": "failed"' runs.json; then cat runs.json standalone.log; exit 1; fi
  sleep 5
done
"""
SOURCE = """
CREATE ROLE lakecdc LOGIN REPLICATION PASSWORD 'secret';
GRANT CREATE ON DATABASE postgres TO lakecdc;
CREATE SCHEMA shop AUTHORIZATION lakecdc;
SET ROLE lakecdc;
CREATE TABLE shop.customers (id bigint PRIMARY KEY, name text);
CREATE TABLE shop.orders (id bigint PRIMARY KEY, customer bigint, amount numeric(12, 2));
INSERT INTO shop.customers SELECT i, 'customer ' || i FROM generate_series(1, 3) AS i;
INSERT INTO shop.orders SELECT i, mod(i, 3) + 1, i * 1.5 FROM generate_series(1, 7) AS i;
"""


def blocks(*kinds: str) -> list[tuple[str, str]]:
    """Kind and text of the page's blocks, in its order."""
    return [(kind, text) for kind, text in _BLOCK.findall(PAGE) if kind in kinds]


def environment(home: Path, *programs: Path) -> dict[str, str]:
    """That of a user with an empty home, who has told pip and uv where packages come from."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
    path = [place for place in os.environ["PATH"].split(os.pathsep) if ".venv" not in place]
    own |= {"HOME": str(home), "PATH": os.pathsep.join([*map(str, programs), *path])}
    cache = os.path.expanduser("~/.cache/pip")
    return {"PIP_CACHE_DIR": cache, "PIP_INDEX_URL": setup_program().package_index(), **own}


def test_its_files_make_four_dags(tmp_path: Path) -> None:
    script = "".join(text for _, text in blocks("files")) + f"python -c '{PARSE}' $AIRFLOW_HOME/dags\n"
    done = subprocess.run(
        ["bash", "-euc", script],
        env=environment(tmp_path, Path(sys.executable).parent),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"dags": DAGS, "errors": {}}


def test_its_schedules_have_no_minute_in_common() -> None:
    (config,) = re.findall(r"lakecdc\.json <<'END'\n(.*?)^END", PAGE, re.MULTILINE | re.DOTALL)
    minutes = [re.sub(r"^\*/15$", "0,15,30,45", cron.split()[0]) for cron in json.loads(config)["schedules"].values()]
    every = [minute for one in minutes for minute in one.split(",")]
    assert len(every) == len(set(every)) == 6


def _in_shell(kind: str, text: str) -> str:
    """A block as the script has it: what serves goes on beside the others, and what starts something is waited for."""
    if kind == "serve":
        return f"({text}) > standalone.log 2>&1 &\n{_SERVED}"
    return text + _LOADED if "unpause --yes lakecdc_ingest" in text else text


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    """Port of a Postgres with the tables of the page, which belong to its login."""
    folder = reachable_folder(tmp_path / "postgres", "lakecdc-first-hour-")
    with Postgres(folder / "data") as server:
        with psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute(SOURCE)
        yield server.port
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_everything_on_it_runs_as_printed(tmp_path: Path, source: int) -> None:
    building, *others = blocks("install", "files", "run", "serve", "look")
    subprocess.run(["bash", "-euc", building[1]], cwd=REPOSITORY, check=True)
    shutil.copytree(REPOSITORY / "dist", tmp_path / "dist")
    script = "".join(_in_shell(kind, text) for kind, text in others)
    given = environment(tmp_path) | served_at(free_port()) | {"AIRFLOW__CORE__PARALLELISM": "2"}
    with (tmp_path / "output.log").open("w") as log:
        process = subprocess.Popen(
            # the port is the only thing that a reader would have to change
            ["bash", "-euo", "pipefail", "-c", script.replace('"port": 5432', f'"port": {source}')],
            env=given, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        code = process.wait(timeout=3000)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    output = (tmp_path / "output.log").read_text()
    assert code == 0, output[-5000:]
    assert "shop.customers 3 rows\nshop.orders 7 rows\n" in output
