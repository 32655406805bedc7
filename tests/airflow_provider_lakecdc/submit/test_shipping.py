"""The files shipped to the cluster."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_lakecdc.submit import shipping


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW__LAKECDC__CACHE_FOLDER", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_zip_is_importable_and_contains_the_contract(cache: Path, tmp_path: Path) -> None:
    code = "import lakecdc.contract.spec as s, lakecdc.metadata.positions; print(s.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(shipping.library_zip())},
    )
    assert done.returncode == 0, done.stderr
    assert str(cache) in done.stdout


def test_the_same_sources_are_built_once(cache: Path) -> None:
    first = shipping.library_zip()
    built_at = first.stat().st_mtime_ns
    assert shipping.library_zip() == first
    assert first.stat().st_mtime_ns == built_at
    assert [path.name for path in cache.iterdir()] == [first.name]


def test_changed_sources_get_another_zip(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shipping.library_zip()
    copy = tmp_path / "lakecdc"
    with zipfile.ZipFile(first) as archive:
        archive.extractall(tmp_path)
    monkeypatch.setattr(shipping, "_library_folder", lambda: copy)
    assert shipping.library_zip() == first
    (copy / "contract" / "spec.py").write_text("changed = True\n")
    assert shipping.library_zip() != first


def test_scripts_are_located_without_importing_them() -> None:
    before = set(sys.modules)
    script = shipping.job_script("rewrite_manifests")
    assert script.name == "rewrite_manifests.py"
    assert script.parent.joinpath("__init__.py").exists()
    assert not {name for name in set(sys.modules) - before if name.startswith("lakecdc.jobs")}
