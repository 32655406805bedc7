"""Secrets are references that only the job resolves."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import mask, refuse_literals, resolve


def test_references_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKE_SECRET", "from-env")
    (tmp_path / "s").write_text("from-file\n")
    given = {"a": {"env": "LAKE_SECRET"}, "b": [{"file": str(tmp_path / "s")}], "c": 1}
    assert resolve(given, "x") == {"a": "from-env", "b": ["from-file"], "c": 1}


def test_missing_references_say_where() -> None:
    with pytest.raises(SpecError, match=r"catalog\.token refers to the environment variable NOT_SET"):
        resolve({"token": {"env": "NOT_SET"}}, "catalog")
    with pytest.raises(SpecError, match="cannot be read"):
        resolve({"file": "/nowhere/at/all"}, "catalog")


@pytest.mark.parametrize("key", ["password", "s3.secret-access-key", "token", "credential", "jdbc.password"])
def test_secret_named_keys(key: str) -> None:
    with pytest.raises(SpecError, match="as a literal"):
        refuse_literals({"catalog": {"properties": {key: "x"}}}, "spec")
    refuse_literals({"catalog": {"properties": {key: {"env": "X"}}}}, "spec")


def test_plain_values_pass() -> None:
    refuse_literals({"uri": "postgresql://user@db/x", "s3.access-key-id": "AK", "dsn": "host=a user=b"}, "spec")


def test_mask() -> None:
    assert mask("postgresql://u:pw@db and password='a b' x") == "postgresql://u:***@db and password=*** x"
