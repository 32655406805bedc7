"""The page for a new user, run as printed: its blocks, one after another, in one shell and an empty home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from playwright.sync_api import sync_playwright

from local_services.airflow import served_at
from local_services.paths import REPOSITORY, reachable_folder
from local_services.postgres import Postgres
from local_services.process import free_port
from local_services.setup_program import setup_program

PAGE = (REPOSITORY / "docs" / "start" / "getting-started.md").read_text()
_BLOCK = re.compile(r"^```bash (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^## (\d)\. (.*?)(?=^## )", re.MULTILINE | re.DOTALL)
PICTURE = REPOSITORY / "build" / "page" / "first-hour.png"
KINDS = ("hourly_governance", "ingest", "nightly_governance", "replay_quarantine", "weekly_governance")
DAGS = [f"lakecdc_{kind}" for kind in KINDS]
PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
print(json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors}))
"""
# the page's implicit waiting: for the web page with the DAGs, and for the end of the first run
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


def blocks(*kinds: str) -> list[str]:
    """Return the texts of the page's blocks of some kinds, in order."""
    return [text for kind, text in _BLOCK.findall(PAGE) if kind in kinds]


def environment(home: Path, *programs: Path) -> dict[str, str]:
    """Return the environment of a user with an empty home and configured package indexes."""
    own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
    path = [place for place in os.environ["PATH"].split(os.pathsep) if ".venv" not in place]
    own |= {"HOME": str(home), "PATH": os.pathsep.join([*map(str, programs), *path])}
    cache = os.path.expanduser("~/.cache/pip")
    return {"PIP_CACHE_DIR": cache, "PIP_INDEX_URL": setup_program().package_index(), **own}


def test_its_files_make_four_dags(tmp_path: Path) -> None:
    script = "".join(blocks("files")) + f"python -c '{PARSE}' $AIRFLOW_HOME/dags\n"
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


def test_it_has_at_most_six_steps() -> None:
    assert [int(number) for number, _ in _STEP.findall(PAGE)] == [1, 2, 3, 4, 5, 6]


def _in_shell(kind: str, text: str) -> str:
    """Return a block for the script: servers run in the background, and started runs are awaited."""
    if kind == "build":
        return f"(cd {REPOSITORY}\n{text})\ncp -r {REPOSITORY}/dist .\n"
    if kind == "serve":
        return f"({text}) > standalone.log 2>&1 &\n{_SERVED}"
    return text + _LOADED if "unpause --yes lakecdc_ingest" in text else text


def _steps_in_shell() -> Iterator[str]:
    """Yield the page's steps, each of which records the second of its end."""
    for number, text in _STEP.findall(PAGE):
        yield "".join(_in_shell(*block) for block in _BLOCK.findall(text))
        yield f"echo {number} $SECONDS >> seconds.txt\n"


def _open_tables(home: Path, address: str) -> None:
    """Log in as the only user, and open the page *Lakehouse* from Airflow's menu."""
    passwords = home / "airflow" / "simple_auth_manager_passwords.json.generated"
    ((user, password),) = json.loads(passwords.read_text()).items()
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(60_000)
        page.goto(f"{address}/auth/login")
        page.locator("input[name=username]").fill(user)
        page.locator("input[name=password]").fill(password)
        page.locator("button[type=submit]").click()
        page.get_by_role("link", name="Lakehouse").click()
        for table in ("shop.customers", "shop.orders"):
            page.frame_locator("iframe").get_by_role("rowheader", name=table).wait_for()
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURE)
        browser.close()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    """Return the port of a Postgres with the page's tables, owned by its login."""
    folder = reachable_folder(tmp_path / "postgres", "lakecdc-first-hour-")
    with Postgres(folder / "data") as server:
        with psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute(SOURCE)
        yield server.port
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_everything_on_it_runs_as_printed(tmp_path: Path, source: int) -> None:
    served = served_at(free_port())
    given = environment(tmp_path) | served | {"AIRFLOW__CORE__PARALLELISM": "2"}
    started = time.monotonic()
    with (tmp_path / "output.log").open("w") as log:
        process = subprocess.Popen(
            # the port is the only thing that a reader would have to change
            ["bash", "-euo", "pipefail", "-c", "".join(_steps_in_shell()).replace('"port": 5432', f'"port": {source}')],
            env=given, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        code = process.wait(timeout=3000)
        output = (tmp_path / "output.log").read_text()
        assert code == 0, output[-5000:]
        _open_tables(tmp_path, served["AIRFLOW__API__BASE_URL"])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    minutes = (time.monotonic() - started) / 60
    assert "shop.customers 3 rows\nshop.orders 7 rows\n" in output
    ends = dict(line.split() for line in (tmp_path / "seconds.txt").read_text().splitlines())
    print(json.dumps({"steps": len(ends), "minutes": round(minutes, 1), "seconds_at_end_of_step": ends}))
