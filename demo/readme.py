"""Update of the demo's output and picture in the README: ``python -m demo.readme`` runs the demo and writes both.

The picture needs Chromium (Debian: ``apt-get install chromium``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from demo.environment import variables
from demo.settings import REPOSITORY, Settings, from_environment
from demo.web import web_page

README = REPOSITORY / "README.md"
PICTURE = REPOSITORY / "docs" / "dag-runs.png"
#: parts of the output in the README: up to the first governed hour, and from the first measurement to the legend
SHOWN = re.compile(
    r"\A(.*?hourly governance[^\n]*\n[^\n]*\n).*?(\[[^\n]*measure before.*?deletion vectors\n)", re.DOTALL
)
SAMPLE = re.compile(r"(<!-- python -m demo\.readme makes this -->\n).*?(?=<!-- until here -->)", re.DOTALL)
_SIZE = "1280,705"


def main() -> None:
    """Run the demo and update both."""
    settings = from_environment()
    done = subprocess.run([sys.executable, "-m", "demo"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"The demo failed:\n{done.stdout}")
    README.write_text(with_sample(README.read_text(), done.stdout))
    picture(settings)


def with_sample(readme: str, output: str) -> str:
    """Return the README with a new sample of the demo's output.

    :param output: the demo's output.
    """
    parts = SHOWN.search(output)
    assert parts, output
    sample = f"{parts[1]}    ...\n{parts[2]}"
    lines = "".join(f"    {line}".rstrip() + "\n" for line in sample.splitlines())
    return SAMPLE.sub(lambda place: f"{place[1]}\n{lines}\n", readme)


def picture(settings: Settings) -> None:
    """Take a screenshot of the demo's DAG runs."""
    chromium = shutil.which("chromium") or sys.exit("Chromium is missing: apt-get install chromium")
    # the source is not used, so its port does not matter
    with (
        web_page(settings, variables(settings, source_port=5432)) as page,
        _with_cookie(page.token(), f"{page.address}/dags") as address,
        tempfile.TemporaryDirectory() as profile,
    ):
        command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={profile}", f"--window-size={_SIZE}", "--virtual-time-budget=20000"]
        subprocess.run([*command, f"--screenshot={PICTURE}", address], check=True, stderr=subprocess.DEVNULL)


@contextmanager
def _with_cookie(token: str, target: str) -> Iterator[str]:
    """Serve an address that sets the login cookie and redirects; cookies of a host are shared by all its ports."""

    class Redirect(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Set-Cookie", f"_token={token}; Path=/")
            self.send_header("Location", target)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Redirect) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


if __name__ == "__main__":
    main()
