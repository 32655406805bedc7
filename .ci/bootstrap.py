"""Create `.venv` from requirements.lock on a machine with only git, make, Python and Java.

Standard library only, and no venv, ensurepip or pip: Debian ships Python without them.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
TOOLS = ROOT / "build" / "tools"
STAMP = VENV / ".lakecdc-stamp"
STAMPED = ("requirements.lock", "setup.cfg", "pyproject.toml")

UV_VERSION = "0.13.8"
VENV_PACK_VERSION = "0.2.0"
DEFAULT_INDEX = "https://pypi.org/simple"
# Spark 4.1 is tested on 17 and 21; from 24 on Java lacks the security manager Hadoop asks for.
JAVA_OLDEST, JAVA_NEWEST = 17, 23
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")

JARS = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0", "org.xerial:sqlite-jdbc:3.47.1.0")
# of sources that only some specs have, and of the tests, whose processes must not fetch them at the same time
SOURCE_JARS = ("org.postgresql:postgresql:42.7.7",)
SERVICE_JARS = ("org.apache.iceberg:iceberg-aws-bundle:1.12.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1")
# dependencies of Spark's Kafka source that Spark includes
UNWANTED_JARS = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime", "org.lz4:lz4-java")


def main() -> None:
    """Set everything up, or return within a fraction of a second if it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", action="store_true", help="also fetch the jars that the service tests need")
    parser.add_argument("--cluster-env", action="store_true", help="also pack what executors on other machines need")
    parser.add_argument("--prune", action="store_true", help="also remove unused entries from uv's cache")
    parser.add_argument("--wheel", action="store_true", help="only build the wheel into dist/, without .venv and Java")
    arguments = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"Python 3.11 or newer is needed, this is {platform.python_version()}: make setup PYTHON=python3.11")
    TOOLS.mkdir(parents=True, exist_ok=True)
    if arguments.wheel:
        report_progress(f"built {build_wheel(find_uv(), ROOT / 'dist')}")
        return
    with one_at_a_time(TOOLS / ".setup.lock"):
        ensure_java()
        if not STAMP.exists() or STAMP.read_text() != fingerprint():
            install(find_uv())
            STAMP.write_text(fingerprint())
        if arguments.prune:
            prune(find_uv())
        if arguments.cluster_env:
            pack_cluster_environment(find_uv())
        warm_jars((*JARS, *SOURCE_JARS, *(SERVICE_JARS if arguments.services else ())))


def report_progress(text: str) -> None:
    """Print one line of progress."""
    print(f"setup: {text}", flush=True)


@contextlib.contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold a file lock: `make test` and `make demo` may start in two terminals at once."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fingerprint() -> str:
    """Return a hash of everything that the environment depends on, with the folder, as the install is editable."""
    digest = hashlib.sha256(f"{ROOT} {UV_VERSION}".encode())
    for name in STAMPED:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def build_wheel(uv: str, folder: Path) -> Path:
    """Build the wheel from a copy of the sources; the same sources give the same bytes.

    :param uv: path of uv, which only fetches setuptools, in the locked version
    :param folder: where the wheel is put
    :return: the wheel
    """
    with tempfile.TemporaryDirectory() as scratch:
        # in the checkout setuptools would ship what an earlier build left in build/lib, and files with other modes
        os.umask(0o022)
        source = Path(scratch, "source")
        source.mkdir()
        for name in ("setup.cfg", "pyproject.toml", "LICENSE", "README.md"):
            shutil.copyfile(ROOT / name, source / name)
        for name in ("airflow_provider_lakecdc", "spark_jobs"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored, copy_function=shutil.copyfile)
        text = (source / "setup.cfg").read_text()
        (source / "setup.cfg").write_text(re.sub("(?m)^version = .*$", f"version = {wheel_version()}", text))
        for path in source.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        # the oldest time that a zip archive knows
        os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
        pinned = ("--build-constraints", "requirements.lock", "--require-hashes", "--python", sys.executable)
        run_uv(uv, VENV, "build", "-q", "--wheel", *pinned, "-o", str(Path(scratch, "dist")), str(source))
        (built,) = Path(scratch, "dist").glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(built, folder))


def wheel_version() -> str:
    """Return the release that this commit is tagged as, else a development version of the release to come."""
    (release,) = re.findall("(?m)^version = (.*)$", (ROOT / "setup.cfg").read_text())
    # git would describe the repository around an unpacked archive
    if not (ROOT / ".git").exists():
        return f"{release}.dev0"
    if not shutil.which("git"):
        sys.exit("setup: git is needed to determine the version of this checkout: install it")
    describe = ("git", "describe", "--tags", "--match", "v*", "--long", "--always", "--abbrev=8", "--dirty")
    done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True)
    described = re.fullmatch(r"(?:v(.+)-(\d+)-g)?([0-9a-f]+)(-dirty)?", done.stdout.strip())
    if not described:
        sys.exit(f"setup: git cannot determine the version: {done.stderr.strip() or done.stdout.strip()}")
    tag, commits, commit, dirty = described.groups()
    if commits != "0" or dirty:
        return f"{release}.dev{commits or 0}+g{commit}"
    if tag != release:
        sys.exit(f"setup: the tag is v{tag}, but the version in setup.cfg is {release}: change one of them")
    return release


# --- Java ---------------------------------------------------------------------------------------------------------


def ensure_java() -> None:
    """Check Java; install it if the process is root on a Debian-like system."""
    major = java_major()
    if major is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install_java()
        major = java_major()
    if major is None or not JAVA_OLDEST <= major <= JAVA_NEWEST:
        current = "there is none" if major is None else f"this is Java {major}"
        sys.exit(f"Spark needs Java 17 or 21, {current}: apt-get install {JAVA_PACKAGES[0]}, or set JAVA_HOME")


def java_major() -> int | None:
    """Return the major version of the Java that Spark would start, None without one."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return None
    answer = subprocess.run([java, "-version"], capture_output=True, text=True)
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version.group(1)) if version else None


def install_java() -> None:
    """Install the first Java package that this distribution has."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    for package in JAVA_PACKAGES:
        report_progress(f"installing {package}")
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode == 0:
            return


# --- uv -----------------------------------------------------------------------------------------------------------


def find_uv() -> str:
    """Return a working uv: the machine's own, else one downloaded into build/tools."""
    own = shutil.which("uv")
    if own and works(own):
        return own
    folder = TOOLS / f"uv-{UV_VERSION}"
    local = str(folder / "bin" / "uv")
    if not works(local):
        report_progress(f"fetching uv {UV_VERSION}")
        shutil.rmtree(folder, ignore_errors=True)
        if not uv_by_pip(folder):
            uv_by_hand(folder)
    return local


def works(uv: str) -> bool:
    """Check whether a program runs; a pyenv shim may exist without working."""
    with contextlib.suppress(OSError):
        return subprocess.run([uv, "--version"], capture_output=True).returncode == 0
    return False


def uv_by_pip(folder: Path) -> bool:
    """Fetch uv with this Python's pip, if it has one.

    :param folder: where to put it
    :return: whether ``folder/bin/uv`` works now
    """
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), f"uv=={UV_VERSION}"]
    done = subprocess.run(command, capture_output=True)
    return done.returncode == 0 and works(str(folder / "bin" / "uv"))


def uv_by_hand(folder: Path) -> None:
    """Fetch uv's wheel from the package index and unpack its program.

    :param folder: where to put it
    """
    url, expected = uv_wheel(f"{package_index().rstrip('/')}/uv/")
    content = get(url)
    if hashlib.sha256(content).hexdigest() != expected:
        sys.exit(f"setup: the sha256 of {url.rpartition('/')[2]} differs from the index")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = Path(scratch, "uv.whl")
        wheel.write_bytes(content)
        with zipfile.ZipFile(wheel) as archive:
            program = next(name for name in archive.namelist() if name.endswith("/scripts/uv"))
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            (folder / "bin" / "uv").write_bytes(archive.read(program))
    (folder / "bin" / "uv").chmod(0o755)


def uv_wheel(page: str) -> tuple[str, str]:
    """Find the wheel of this machine on the index page of uv.

    :param page: address of the page, JSON or HTML
    :return: address of the wheel and its sha256
    """
    system = "macosx" if sys.platform == "darwin" else "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
    pattern = re.compile(rf"uv-{re.escape(UV_VERSION)}-py3-none-[\w.]*{system}[\w.]*_{platform.machine()}[\w.]*\.whl")
    for url, digest in listed_files(get(page).decode()):
        if pattern.fullmatch(url.rpartition("/")[2]) and digest:
            return urllib.parse.urljoin(page, url), digest
    return sys.exit(f"setup: no wheel of uv {UV_VERSION} for this machine on the index: install uv or pip first")


def listed_files(text: str) -> list[tuple[str, str]]:
    """Return address and sha256 of the files on a page of the simple index.

    :param text: the page; older mirrors know HTML only
    """
    if text.lstrip().startswith("{"):
        return [(file["url"], file["hashes"].get("sha256", "")) for file in json.loads(text)["files"]]
    return re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', text)


def package_index() -> str:
    """Return the package index that is configured on this machine."""
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    return next((os.environ[name] for name in names if os.environ.get(name)), pip_setting() or DEFAULT_INDEX)


def pip_setting() -> str | None:
    """Return the index named in pip's settings files, which uv does not read."""
    settings = configparser.RawConfigParser(strict=False)
    home = Path(os.path.expanduser("~"))
    settings.read(["/etc/pip.conf", home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"])
    return settings.get("global", "index-url", fallback=None)


def get(url: str) -> bytes:
    """Download a URL, with the login in the URL."""
    parts = urllib.parse.urlsplit(url)
    headers = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1, */*;q=0.01"}
    if parts.username:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    trust = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    with urllib.request.urlopen(urllib.request.Request(bare, headers=headers), timeout=120, context=trust) as answer:
        return bytes(answer.read())


def trusted_certificates() -> str | None:
    """Return the machine's list of certificate authorities; uv's own list lacks a company's own authorities."""
    places = (os.environ.get("PIP_CERT"), ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt")
    return next((place for place in places if place and os.path.exists(place)), None)


# --- the environment ----------------------------------------------------------------------------------------------


def install(uv: str) -> None:
    """Update `.venv` to the lock and install the project editable."""
    started = time.monotonic()
    if not (VENV / "bin" / "python").exists():
        run_uv(uv, VENV, "venv", "-q", "--python", sys.executable, str(VENV))
    report_progress("installing the packages of requirements.lock, 1 GB the first time")
    # the lock is complete except for intended omissions
    run_uv(uv, VENV, "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", "requirements.lock")
    # setuptools is in the lock: an isolated build would fetch one that is not pinned.
    run_uv(uv, VENV, "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-e", ".")
    report_progress(f".venv is ready after {time.monotonic() - started:.0f} s")


def pack_cluster_environment(uv: str) -> None:
    """Create `build/cluster-env.tar.gz` of the extra `executor`, as locked, unless it is up to date."""
    archive, folder = ROOT / "build" / "cluster-env.tar.gz", ROOT / "build" / "cluster-env"
    stamp = folder / ".lakecdc-stamp"
    if archive.exists() and stamp.exists() and stamp.read_text() == fingerprint():
        return
    shutil.rmtree(folder, ignore_errors=True)
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg")
    lines = declared["options.extras_require"]["executor"].splitlines()
    requirements = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    report_progress("packing the environment of executors")
    run_uv(uv, folder, "venv", "-q", "--python", sys.executable, str(folder))
    # each executor would compile what its tasks import
    install = ("pip", "install", "-q", "--compile-bytecode", "-c", "requirements.lock")
    run_uv(uv, folder, *install, *requirements, f"venv-pack=={VENV_PACK_VERSION}")
    pack = [str(folder / "bin" / "venv-pack"), "-q", "-f", "-p", str(folder), "-o", str(archive)]
    if subprocess.run(pack).returncode:
        sys.exit(f"setup: {' '.join(pack)} failed")
    stamp.write_text(fingerprint())
    report_progress(f"{archive.relative_to(ROOT)}: {archive.stat().st_size // 2**20} MB")


def run_uv(uv: str, folder: Path, *arguments: str) -> None:
    """Run uv on an environment; exit if it fails.

    :param folder: of the environment
    """
    environment = {**os.environ, "VIRTUAL_ENV": str(folder), "UV_DEFAULT_INDEX": package_index()}
    trusted = trusted_certificates()
    if trusted:
        environment.setdefault("SSL_CERT_FILE", trusted)
    if subprocess.run([uv, *arguments], cwd=ROOT, env=environment).returncode:
        sys.exit(f"setup: uv {' '.join(arguments)} failed")


def prune(uv: str) -> None:
    """Remove unused entries from uv's cache, 2.7 GB per environment if the index sends no cache validators.

    Without validators uv downloads and builds source packages again, such as pyspark, and keeps the old builds."""
    subprocess.run([uv, "cache", "prune", "-q"], check=True)


# --- Spark's jars -------------------------------------------------------------------------------------------------


def fetched(coordinates: str) -> Path:
    """Return the path of a jar that Spark downloads."""
    # Java takes the home folder from the account, not from HOME.
    cache = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ivy2.5.2" / "jars"
    return cache / "{}_{}-{}.jar".format(*coordinates.split(":"))


def warm_jars(coordinates: tuple[str, ...]) -> None:
    """Let Spark download its jars now, so that no test or demo waits for it."""
    if all(fetched(jar).exists() for jar in coordinates):
        return
    report_progress("fetching Spark's jars")
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "nothing.py")
        script.touch()
        submit = str(VENV / "bin" / "spark-submit")
        command = [submit, "--master", "local[1]", "--packages", ",".join(coordinates)]
        command += ["--exclude-packages", ",".join(UNWANTED_JARS), str(script)]
        environment = {**os.environ, "PYSPARK_PYTHON": str(VENV / "bin" / "python")}
        environment.pop("SPARK_HOME", None)
        for _ in range(3):
            done = subprocess.run(command, env=environment, cwd=scratch, capture_output=True, text=True)
            if done.returncode == 0:
                return
    sys.exit(f"setup: Spark cannot download its jars:\n{(done.stdout + done.stderr)[-3000:]}")


if __name__ == "__main__":
    main()
