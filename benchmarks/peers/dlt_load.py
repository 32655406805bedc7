"""dlt's full load of one Postgres table into Iceberg, run by an interpreter that has dlt.

    python dlt_load.py URI TABLE FOLDER

Settings that dlt's documentation recommends for large tables: the Arrow backend, chunks of 100,000 rows, two workers
in each stage.
"""

import json
import os
import sys
import time


def main(uri: str, table: str, folder: str) -> None:
    """Load the table and print the seconds as JSON."""
    os.environ |= {
        "EXTRACT__WORKERS": "2",
        "NORMALIZE__WORKERS": "2",
        "LOAD__WORKERS": "2",
        "DESTINATION__FILESYSTEM__BUCKET_URL": f"file://{folder}/warehouse",
        "DLT_DATA_DIR": f"{folder}/home",
        "RUNTIME__DLTHUB_TELEMETRY": "false",
    }
    import dlt
    from dlt.sources.sql_database import sql_table

    pipeline = dlt.pipeline(
        "bench", destination="filesystem", dataset_name="bench", pipelines_dir=f"{folder}/pipelines"
    )
    began = time.monotonic()
    source = sql_table(credentials=uri, table=table, backend="pyarrow", chunk_size=100_000)
    pipeline.run(source, table_format="iceberg", write_disposition="replace")
    print(json.dumps({"seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main(*sys.argv[1:])
