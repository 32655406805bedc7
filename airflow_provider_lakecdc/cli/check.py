"""``check``: check everything that jobs need, and show what to do if it is missing."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.checks import catalog, deployment, machine, readers, source
from airflow_provider_lakecdc.cli.tables import configuration
from airflow_provider_lakecdc.cli.terminal import print_grid, print_json
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.submit.launcher import SparkTarget
from airflow_provider_lakecdc.submit.platforms import SPARK_SUBMIT
from airflow_provider_lakecdc.templates.config import LakeConfig, SparkConfig
from lakecdc.contract import runtime
from lakecdc.contract.findings import Finding, run_check
from lakecdc.contract.spec import JobSpec
from lakecdc.metadata.policy import is_pattern, matching

_STYLES = {"ok": "", "warn": "yellow", "fail": "red"}


def main(args: Namespace) -> int:
    """Run all checks and print their findings; return 1 if something that jobs need is missing, else 0."""
    findings = list(_findings(args))
    if args.json:
        print_json([finding.facts() for finding in findings])
    else:
        _show(findings)
    return int(any(finding.state == "fail" for finding in findings))


def _findings(args: Namespace) -> Iterator[Finding]:
    yield machine.packages()
    yield machine.java()
    configs: list[LakeConfig] = []
    makes_dags = False
    if not args.catalog:
        whole = run_check("configuration", _configuration, args, configs)
        yield whole
        makes_dags = whole.state == "ok"
        if whole.state == "fail" and not configs:
            # the connections to check are unknown without it
            return
    config = configs[0] if configs else None
    spark = config.spark if config else SparkConfig()
    targets: list[SparkTarget] = []
    conn_id = spark.conn_id or settings.spark_conn_id()
    yield run_check("spark connection", deployment.spark_connection, conn_id, spark.deploy_mode, targets)
    for target in targets:
        if target.platform == SPARK_SUBMIT:
            yield from machine.spark(target)
    yield run_check("documents", deployment.documents, targets[0] if targets else None)
    conn_id = config.catalog if config else args.catalog or settings.catalog_conn_id()
    catalog_findings = [*catalog.findings(conn_id, _namespaces(config), _existing(config))]
    yield from catalog_findings
    specs: list[JobSpec] = []
    # errors of the configuration and of the catalog are reported above
    if config and makes_dags and all(finding.state == "ok" for finding in catalog_findings[:2]):
        yield from readers.findings(config)
    if config and config.source and config.targets and makes_dags and catalog_findings[0].state == "ok":
        yield from source.findings(config, specs)
    yield run_check("jars", _jars, conn_id, spark, specs)


def _configuration(args: Namespace, configs: list[LakeConfig]) -> Finding | str:
    config = configuration(args)
    if config is None:
        remedy = "Write one with source and tables for the provider's DAGs: docs/start/getting-started.md, step 5."
        return Finding("configuration", "warn", "no configuration is set, so no source is checked", remedy)
    if config.tables or config.targets:
        configs.append(config)
    return deployment.dags(config)


def _existing(config: LakeConfig | None) -> list[str]:
    """Return the tables to maintain that ingestion does not feed."""
    if config is None:
        return []
    return [name for name in config.tables if not is_pattern(name) and not matching(config.fed_tables, [name])]


def _namespaces(config: LakeConfig | None) -> list[str]:
    named = [*config.maintained_tables, *config.target_tables] if config else []
    namespaces = dict.fromkeys(name.rpartition(".")[0] for name in named if not name.startswith("!"))
    return [name for name in namespaces if name and not any(sign in name for sign in "*?[{")]


def _jars(conn_id: str, spark: SparkConfig, specs: Sequence[JobSpec]) -> Finding:
    try:
        properties = get_catalog(conn_id).properties
    except JobBadInputError:
        # reported by its own check
        properties = {}
    needed = [*runtime.packages(properties), *(jar for spec in specs for jar in runtime.source_packages(spec.source))]
    needed += [each.strip() for each in (spark.packages or "").split(",") if each.strip()]
    conf = {name: str(value) for name, value in spark.conf.items()}
    return machine.jars(list(dict.fromkeys(needed)), conf, spark.repositories)


def _show(findings: Sequence[Finding]) -> None:
    rows, styles = [], []
    for finding in findings:
        rows.append([finding.state, finding.check, finding.result])
        styles.append(_STYLES[finding.state])
        if finding.remedy:
            rows.append(["", "", f"→ {finding.remedy}"])
            styles.append("")
    print_grid({"": "left", "check": "left", "found": "left"}, rows, styles)
