"""What a failed proof leaves behind: nothing, or files that the error names."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import ConflictError, VerificationError
from lakecdc.maintain.failed_files import discarded_on_failure


def after(error: Exception, places: list[str], *, keep: bool = True) -> tuple[list[str], str]:
    """What is deleted, and what the error says."""
    deleted = list[str]()
    with (
        pytest.raises(type(error)) as raised,
        discarded_on_failure(places, lambda: deleted.extend(places), keep_failed=keep),
    ):
        raise error
    return deleted, str(raised.value)


def test_files_of_a_failed_proof_stay_where_they_are_asked_for() -> None:
    proof = VerificationError("They differ.", table="a.b", hint="Look at it.")
    deleted, told = after(proof, ["s3://b/t/d=1/x.parquet", "s3://b/t/d=2/y.parquet"])
    assert deleted == []
    assert told == (
        "a.b: They differ. Look at it. The written files are kept in s3://b/t/ (d=1/x.parquet, d=2/y.parquet) "
        "until remove_orphan_files deletes them."
    )
    assert proof.attributes["failed_files"] == ["s3://b/t/d=1/x.parquet", "s3://b/t/d=2/y.parquet"]


def test_a_folder_is_named_as_such_and_many_files_by_the_first() -> None:
    assert "kept in s3://b/t/staged/ until" in after(VerificationError("x"), ["s3://b/t/staged/"])[1]
    many = [f"s3://b/t/{n}.avro" for n in range(7)]
    assert "in s3://b/t/ (0.avro, 1.avro, 2.avro and 4 more, see" in after(VerificationError("x"), many)[1]
    assert "No files were written" in after(VerificationError("x"), [])[1]


@pytest.mark.parametrize(("error", "keep"), [(VerificationError("x"), False), (ConflictError("x"), True)])
def test_all_others_go(error: Exception, keep: bool) -> None:
    assert after(error, ["f"], keep=keep) == (["f"], "x")
