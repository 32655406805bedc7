"""The steps of ``govern``: each is as strict as its own job's spec, and errors name the step."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.expiring import RemoveOrphanFilesOptions
from lakecdc.contract.rewriting import CompactDataFilesOptions
from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.runtime.run import TABLE_WORK, WORK, work_of

CATALOG = {"name": "lake", "properties": {"type": "sql", "uri": "sqlite:////tmp/c.db", "warehouse": "file:///tmp/w"}}


def govern(*steps: dict[str, Any], tables: tuple[str, ...] = ("shop.orders",), **options: Any) -> JobSpec:
    document = {"version": 1, "job": "govern", "catalog": CATALOG, "options": {"steps": list(steps), **options}}
    return parse_spec({**document, "tables": list(tables)} if tables else document, "govern")


def step(job: str = "compact_data_files", **rest: Any) -> dict[str, Any]:
    return {"job": job, **rest}


def test_each_step_becomes_a_spec_of_its_job() -> None:
    steps = [step("rewrite_delete_files"), step(tables=["shop.items"], options={"min_input_files": 7})]
    parsed = govern(*steps)
    assert parsed.tables == ("shop.orders", "shop.items")
    first, second = parsed.steps
    assert (first.job, first.tables) == ("rewrite_delete_files", ("shop.orders",))
    assert second.tables == ("shop.items",) and second.options == CompactDataFilesOptions(min_input_files=7)


def test_tables_may_be_given_by_steps_alone() -> None:
    steps = [step(tables=["a.b", "a.c"]), step("rewrite_manifests", tables=["a.c", "a.d"]), step("rebucket", tables=[])]
    parsed = govern(*steps, tables=())
    assert parsed.tables == ("a.b", "a.c", "a.d")
    assert [each.tables for each in parsed.steps] == [("a.b", "a.c"), ("a.c", "a.d"), ()]


def test_a_dry_run_applies_to_all_steps() -> None:
    steps = [step(), step("remove_orphan_files"), step("rewrite_manifests", options={"dry_run": True})]
    assert [each.options.dry_run for each in govern(*steps).steps] == [False, True, True]
    assert [each.options.dry_run for each in govern(*steps, dry_run=True).steps] == [True, True, True]
    assert govern(step("remove_orphan_files")).steps[0].options == RemoveOrphanFilesOptions()


def test_steps_report_where_the_job_does() -> None:
    reporting = govern(step("remove_orphan_files")).reported_to("s3://lake/try-1")
    assert (reporting.documents, reporting.steps[0].documents) == ("s3://lake/try-1", "s3://lake/try-1")


def test_a_dry_step_reports_no_change() -> None:
    dry = step(tables=["a.b"], options={"dry_run": True, "side_tables": ["a.s"]})
    parsed = govern(dry, step(tables=["a.c"]), step("rewrite_manifests"))
    steps = [("compact_data_files", "a.b"), ("compact_data_files", "a.s"), ("compact_data_files", "a.c")]
    assert [parsed.changes(*each) for each in steps] == [False, False, True]
    assert parsed.changes("rewrite_manifests", "shop.orders")
    assert not govern(step(), dry_run=True).changes("compact_data_files", "shop.orders")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "names no step"),
        ([{"tables": ["a.b"]}], "options.steps[0].job is missing"),
        ([step(), step("ingest")], "options.steps[1], ingest: This job cannot be a step."),
        ([step("replay_quarantine")], "cannot be a step"),
        ([step("govern", options={"steps": [step()]})], "cannot be a step"),
        ([step("compact")], "A step is one of rewrite_delete_files, "),
        ([step(options={"dryrun": True})], "options.steps[0], compact_data_files: Unknown key 'dryrun' in options."),
        (
            [step(options={"min_input_files": "7"})],
            "options.steps[0], compact_data_files: options.min_input_files must",
        ),
        ([step(options={"verify": "off"})], "options.steps[0], compact_data_files: options.verify is 'off' without"),
        ([step(options={"side_tables": ["x"]})], "options.steps[0], compact_data_files: options.side_tables names 'x'"),
        ([step(options={"fail_on": ["skipped"]})], "fail_on is for all steps"),
        ([step(tables=["orders"])], "options.steps[0], compact_data_files: tables names 'orders'"),
        ([step(tables=[])], "No step names a table"),
        ([step(tabels=[])], "Did you mean 'tables'"),
        ([step(), step()], "options.steps[1], compact_data_files: shop.orders: An earlier step does the same"),
        ([step(), step(tables=["a.b"], options={"side_tables": ["shop.orders"]})], "does the same job"),
    ],
)
def test_wrong_steps_are_refused(steps: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        govern(*steps)
    assert message in str(caught.value)


def test_a_step_without_tables_is_refused() -> None:
    with pytest.raises(SpecError, match="Neither the step nor the spec names a table"):
        govern(step(), tables=())


@pytest.mark.parametrize("job", [*WORK, *TABLE_WORK])
def test_the_work_of_each_job_can_be_imported(job: str) -> None:
    assert callable(work_of(job))
