"""A failed proof leaves no files, or files that the error names."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import ConflictError, VerificationError
from lakecdc.maintain.failed_files import discarded_on_failure


def fail_with(error: Exception, places: list[str], *, keep: bool = True) -> tuple[list[str], str]:
    """Return the deleted files and the error's message."""
    deleted = list[str]()
    with (
        pytest.raises(type(error)) as raised,
        discarded_on_failure(places, lambda: deleted.extend(places), keep_failed=keep),
    ):
        raise error
    return deleted, str(raised.value)


def test_files_of_a_failed_proof_stay_on_request() -> None:
    proof = VerificationError("They differ.", table="a.b", hint="Look at it.")
    deleted, message = fail_with(proof, ["s3://b/t/d=1/x.parquet", "s3://b/t/d=2/y.parquet"])
    assert deleted == []
    assert message == (
        "a.b: They differ. Look at it. The written files are kept in s3://b/t/ (d=1/x.parquet, d=2/y.parquet) "
        "until remove_orphan_files deletes them."
    )
    assert proof.attributes["failed_files"] == ["s3://b/t/d=1/x.parquet", "s3://b/t/d=2/y.parquet"]


def test_errors_name_the_folder_and_the_first_files() -> None:
    assert "kept in s3://b/t/staged/ until" in fail_with(VerificationError("x"), ["s3://b/t/staged/"])[1]
    many = [f"s3://b/t/{n}.avro" for n in range(7)]
    assert "in s3://b/t/ (0.avro, 1.avro, 2.avro and 4 more, see" in fail_with(VerificationError("x"), many)[1]
    assert "No files were written" in fail_with(VerificationError("x"), [])[1]


@pytest.mark.parametrize(("error", "keep"), [(VerificationError("x"), False), (ConflictError("x"), True)])
def test_other_files_are_deleted(error: Exception, keep: bool) -> None:
    assert fail_with(error, ["f"], keep=keep) == (["f"], "x")
