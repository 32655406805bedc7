"""Errors about executors with an unsuitable Python; tests/e2e/test_cluster.py has a cluster."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.runtime.executors import PACKAGES, SOURCE_PACKAGES, check_executors

MODULES = [*PACKAGES, *(name for names in SOURCE_PACKAGES.values() for name in names)]


@pytest.mark.parametrize("module", MODULES)
def test_the_executor_extra_installs_the_checked_modules(module: str) -> None:
    declared = configparser.ConfigParser()
    declared.read(Path(__file__).parents[3] / "setup.cfg")
    brought = re.findall(r"^[\w-]+", declared["options.extras_require"]["executor"], re.MULTILINE)
    distributions = importlib.metadata.packages_distributions()[module]
    assert {name.lower().replace("_", "-") for name in distributions} & {*brought}


class Cluster:
    """A stand-in for the context of a session whose tasks fail, or lack packages."""

    master, defaultParallelism = "spark://there:7077", 2

    def __init__(self, answer: Any) -> None:
        self.sparkContext, self.answer = self, answer

    def parallelize(self, *_: Any) -> Any:
        return self

    def mapPartitions(self, _: Any) -> Any:
        return self

    def collect(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (RuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12"), "another minor"),
        (RuntimeError("ModuleNotFoundError: No module named 'lakecdc'"), "lacks lakecdc"),
        (RuntimeError('IOException: Cannot run program "./environment/bin/python"'), "cannot find Python"),
        ([("worker-3", ["duckdb", "pyarrow"])], "on worker-3 lacks duckdb, pyarrow"),
    ],
)
def test_unsuitable_executors_are_reported_with_a_remedy(answer: Any, message: str) -> None:
    cluster: Any = Cluster(answer)
    with pytest.raises(InputError, match=message) as refused:
        check_executors(cluster)
    assert "cluster-env" in str(refused.value)


def test_other_failures_are_passed_on() -> None:
    cluster: Any = Cluster(RuntimeError("Connection reset"))
    with pytest.raises(RuntimeError, match="Connection reset"):
        check_executors(cluster)
