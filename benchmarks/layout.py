"""Measure compaction and sorting: ours, Iceberg's ``rewrite_data_files``, and DuckDB alone.

    python -m benchmarks.layout [--megabytes 2000] [--files 400] [--repeat 1] [--shapes plain,deletes,nested]
    python -m benchmarks.layout --processes 1,2,4

Tables of orders as changes leave them: each file has ids of the whole range. ``plain`` has format version 2,
``deletes`` version 3 and a deletion vector for each file, which deletes 5 % of its rows, ``nested`` also has structs,
lists and maps. All contenders aim at files of 128 MB. Each is a process that has a session, has done the same to a
small table, and starts from the same files and the same catalog; its output is compared with the original rows. Ours is
the job with its full proof, ``ours_unproven`` the same with ``verify`` off. DuckDB has as many threads as Spark has
cores and as much memory as the heap; it only copies rows into Parquet files, and is the ceiling. MB are those of the
data files that are read. Memory is the resident peak of all processes together.

``--processes`` works on the plain table with that many executors of one core and one heap each, and runs
``benchmarks.ingest`` and ``benchmarks.deletes`` with them. Speed-up is reported from one to two; beyond the cores of
the machine core-seconds show the cost of another process.

Figures are medians over ``--repeat``. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.deletes import costs
from benchmarks.folders import emptied
from benchmarks.memory import peak_resident
from benchmarks.orders import CATALOG, DELETED, SHAPES, Lake
from benchmarks.terminal import only_own_lines
from demo.compare import open_duckdb
from lakecdc.runtime.run import run, work_of

_TARGET_BYTES = 128 * 2**20
WORKS = ("compaction", "sort")
CONTENDERS = ("ours", "ours_unproven", "iceberg", "duckdb")


class Run(NamedTuple):
    """The work of one process.

    :param memory: heap of the driver, or of each executor.
    """

    shape: str
    work: str
    contender: str
    cores: int
    memory: str


def _by_ours(lake: Lake, shape: str, work: str, **options: Any) -> None:
    job = {"compaction": "compact_data_files", "sort": "sort_data_files"}[work]
    columns = {"columns": ["id"]} if work == "sort" else {}
    given = {"target_file_size_bytes": _TARGET_BYTES, **columns, **options}
    (report,) = run(lake.spec(job, f"bench.{shape}", given), work_of(job)).tables
    assert report.outcome == "done", report.reason


def _by_iceberg(lake: Lake, shape: str, work: str) -> None:
    strategy = "strategy => 'sort', sort_order => 'id'" if work == "sort" else "strategy => 'binpack'"
    options = f"map('target-file-size-bytes', '{_TARGET_BYTES}', 'rewrite-all', 'true')"
    call = f"rewrite_data_files(table => '{CATALOG}.bench.{shape}', {strategy}, options => {options})"
    (row,) = lake.session().sql(f"CALL {CATALOG}.system.{call}").collect()
    assert row["failed_data_files_count"] == 0, row


def _by_duckdb(lake: Lake, shape: str, work: str, cores: int, memory: str) -> None:
    name, output = f"bench.{shape}", lake.folder / "duckdb" / shape
    output.parent.mkdir(exist_ok=True)
    with_deletes = SHAPES[shape.removesuffix("_small")].deletes
    rows = f"iceberg_scan('{lake.metadata(name)}')" if with_deletes else f"read_parquet({lake.files(name)[0]})"
    order = " ORDER BY id" if work == "sort" else ""
    with open_duckdb() as connection:
        for setting in (
            f"threads = {cores}",
            f"memory_limit = '{memory}iB'",
            f"temp_directory = '{lake.folder}/duckdb/spilled'",
            f"preserve_insertion_order = {work == 'sort'}",
            # with it DuckDB 1.5.5 confuses the vectors of a Puffin file
            "enable_external_file_cache = false",
        ):
            connection.execute(f"SET {setting}")
        form = f"FORMAT parquet, COMPRESSION zstd, FILE_SIZE_BYTES {_TARGET_BYTES}"
        connection.execute(f"COPY (SELECT * FROM {rows}{order}) TO '{output}' ({form})")


def do(lake: Lake, given: Run) -> dict[str, Any]:
    """Run one piece of work in this process and return its cost."""
    for shape in (f"{given.shape}_small", given.shape):
        with costs() as cost, peak_resident(os.getpid()) as peak:
            if given.contender == "duckdb":
                _by_duckdb(lake, shape, given.work, given.cores, given.memory)
            elif given.contender == "iceberg":
                _by_iceberg(lake, shape, given.work)
            elif given.contender == "ours":
                _by_ours(lake, shape, given.work, verify="full")
            else:
                _by_ours(lake, shape, given.work, verify="off", verify_off_reason="measured without")
    memory = {f"peak_{kind}_mb": size for kind, size in peak.items()}
    return {"seconds": cost.seconds, "core_seconds": cost.core_seconds, **memory}


def in_a_process(lake: Lake, *arguments: str, **environment: str) -> Any:
    """Run this module's ``--only`` in a separate process and return its JSON."""
    command = [sys.executable, "-m", "benchmarks.layout", "--folder", str(lake.folder), "--only", *arguments]
    return run_benchmark(command, **environment)


def run_benchmark(command: Sequence[str], **environment: str) -> Any:
    """Run a benchmark and return the JSON of its last line."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    return json.loads(done.stdout.splitlines()[-1])


def spark_of(cores: int, memory: str, executors: int = 0) -> dict[str, str]:
    """Return the environment of a process whose session has these resources.

    :param executors: each of one core; 0 for a session in one process.
    """
    size = f"--driver-memory {memory} --executor-memory {memory}"
    # a worker's memory is in MiB, and fits any executor
    master = f"local-cluster[{executors},1,65536]" if executors else f"local[{cores}]"
    return {"SPARK_MASTER": master, "PYSPARK_SUBMIT_ARGS": f"{size} --conf spark.ui.enabled=false pyspark-shell"}


def content(files: Sequence[str], condition: str = "true") -> tuple[Any, int]:
    """Return a fingerprint of the rows, and how many of these files overlap at most."""
    with open_duckdb() as connection:
        rows = f"FROM read_parquet({[*files]}, filename = true) WHERE {condition}"
        each = "count(*), sum(id), bit_xor(hash(id, weight, updated_at)), min(id), max(id)"
        hashes = connection.execute(f"SELECT {each} {rows} GROUP BY filename").fetchall()
    hashed, ends = 0, []
    for _, _, hash_of_file, first, last in hashes:
        hashed ^= hash_of_file
        ends += [(first, 0), (last, 1)]
    depth, deepest = 0, 0
    for _, is_last in sorted(ends):
        depth += -1 if is_last else 1
        deepest = max(deepest, depth)
    return (sum(row[0] for row in hashes), sum(row[1] for row in hashes), hashed), deepest


def checked(lake: Lake, given: Run, expected: Any) -> dict[str, int]:
    """Return the number of written files and the deepest overlap; all rows must be in them."""
    deleted, files = 0, [str(path) for path in (lake.folder / "duckdb" / given.shape).glob("*.parquet")]
    if given.contender != "duckdb":
        files, deleted = lake.files(f"bench.{given.shape}")
    fingerprint, depth = content(files)
    assert fingerprint == expected and not deleted, (given, fingerprint, expected, deleted)
    return {"files": len(files), "overlap": depth}


def measured(lake: Lake, shape: str, runs: Sequence[Run], repeat: int) -> dict[str, Any]:
    """Return the cost of each contender for each work on one table."""
    files, _ = lake.files(f"bench.{shape}")
    size = sum(Path(file).stat().st_size for file in files)
    expected, _ = content(files, f"NOT ({DELETED})" if SHAPES[shape].deletes else "true")
    figures_by_run: dict[Run, list[dict[str, Any]]] = {given: [] for given in runs}
    for _ in range(repeat):
        for given in runs:
            lake.roll_back()
            for file in files:
                # no contender pays for the first reading of the disk
                Path(file).read_bytes()
            environment = spark_of(given.cores, given.memory)
            figures = in_a_process(lake, json.dumps(given), **environment)
            figures |= {"mb_s": round(size / 1e6 / figures["seconds"], 1), **checked(lake, given, expected)}
            figures_by_run[given].append(figures)
            print(f"{shape}, {given.work}, {given.contender}: {figures['mb_s']} MB/s")
    results: dict[str, Any] = {"megabytes": round(size / 1e6), "rows": expected[0]}
    for work in dict.fromkeys(given.work for given in runs):
        sets = {given.contender: _medians(sets) for given, sets in figures_by_run.items() if given.work == work}
        results[work] = {**sets, "ratios": _ratios(sets)}
    return results


def _medians(sets: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: round(statistics.median(each[name] for each in sets), 1) for name in sets[0]}


def _ratios(sets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return how many times faster ours is than the others, and what the proof adds to it."""
    if "ours" not in sets:
        return {}
    ours = sets["ours"]
    return {
        f"ours/{name}": {
            "speed": round(ours["mb_s"] / peer["mb_s"], 2),
            "core_seconds": round(ours["core_seconds"] / peer["core_seconds"], 2),
        }
        for name, peer in sets.items()
        if name != "ours"
    }


def with_processes(lake: Lake, counts: Sequence[int], memory: str, megabytes: int) -> dict[str, Any]:
    """Return the cost of ours by number of one-core executors, and the speed-up of the second one."""
    results: dict[str, dict[str, Any]] = {}
    rows = content(lake.files("bench.plain")[0])[0][0]
    events, million_rows = max(1000, megabytes * 500), max(1, megabytes // 200)
    more = [sys.executable, "-m"]
    for count in counts:
        environment = spark_of(count, memory, count)
        for work in WORKS:
            lake.roll_back()
            figures = in_a_process(lake, json.dumps(Run("plain", work, "ours", count, memory)), **environment)
            results.setdefault(work, {})[str(count)] = _per_row(figures, rows)
        folder = ["--folder", str(lake.folder / "other")]
        sizes = ["--contenders", "lakecdc", "--events", str(events), "--keys", str(events // 4)]
        output = run_benchmark([*more, "benchmarks.ingest", *sizes, *folder], **environment)
        warm = {name: output[name]["lakecdc"][1] for name in ("seconds", "core_seconds")}
        results.setdefault("ingestion", {})[str(count)] = _per_row(warm, events)
        growth = ["--growth", str(million_rows), "--deletes", str(million_rows * 10_000), *folder]
        (converted,) = run_benchmark([*more, "benchmarks.deletes", *growth], **environment)["growth"].values()
        output = {name: converted[name] for name in ("seconds", "core_seconds")}
        results.setdefault("conversion", {})[str(count)] = _per_row(output, million_rows * 1_000_000)
        print(f"{count} executors: { ({name: each[str(count)]['seconds'] for name, each in results.items()}) } s")
    if {1, 2} <= {*counts}:
        for each in results.values():
            each["speed_up"] = round(each["1"]["seconds"] / each["2"]["seconds"], 2)
    return results


def _per_row(figures: dict[str, Any], rows: int) -> dict[str, Any]:
    return {**figures, "core_seconds_a_million_rows": round(figures["core_seconds"] * 1e6 / rows, 2)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000, help="of the data files of each table, roughly")
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g", help="of Spark's heap, and of DuckDB")
    parser.add_argument("--processes", default="", help="numbers of executors to compare, such as 1,2,4")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/layout"))
    parser.add_argument("--keep", action="store_true", help="reuse the existing tables")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    lake = Lake(given.folder.resolve() if given.only or given.keep else emptied(given.folder, "warehouse"))
    with only_own_lines(lake.folder / "output.log"):
        if given.only and given.only[0] == "fill":
            for shape, rows in json.loads(given.only[1]).items():
                lake.fill(shape, rows, given.files)
            print("{}")
            return
        if given.only:
            print(json.dumps(do(lake, Run(*json.loads(given.only[0])))))
            return
        print(json.dumps({**_all(lake, given), "load": round(os.getloadavg()[2], 1)}))


def _all(lake: Lake, given: argparse.Namespace) -> dict[str, Any]:
    shapes = ["plain"] if given.processes else given.shapes.split(",")
    if given.keep:
        lake.roll_back()
    else:
        rows = {shape: given.megabytes * 1_000_000 // SHAPES[shape].row_bytes for shape in shapes}
        arguments = ["fill", json.dumps(rows), "--files", str(given.files)]
        in_a_process(lake, *arguments, **spark_of(given.cores, given.memory))
        lake.keep()
        print(f"rows of the tables: {rows}")
    facts = {"files": given.files, "memory": given.memory, "cores": os.cpu_count()}
    if given.processes:
        counts = [int(count) for count in given.processes.split(",")]
        results = with_processes(lake, counts, given.memory, given.megabytes)
        return {"name": "bench-layout-processes", **facts, **results}
    for shape in shapes:
        runs = [
            Run(shape, work, contender, given.cores, given.memory)
            for work in given.works.split(",")
            for contender in given.contenders.split(",")
        ]
        facts[shape] = measured(lake, shape, runs, given.repeat)
    return {"name": "bench-layout", "repeat": given.repeat, **facts}


if __name__ == "__main__":
    main()
