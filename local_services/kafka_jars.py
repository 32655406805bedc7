"""The jars of Kafka, Kafka Connect and Debezium, fetched with Maven, and those of Spark's Kafka source."""

from __future__ import annotations

from local_services.paths import TOOLS
from local_services.setup_program import setup_program
from local_services.tools import HERE, Tool, copy_dependencies, digest

_POM = HERE / "kafka_pom" / "pom.xml"
KAFKA = Tool(
    "Kafka, Kafka Connect and Debezium",
    TOOLS / "kafka",
    digest(_POM),
    lambda run, folder: run(copy_dependencies(_POM, folder / "lib")),
)


def class_path() -> str:
    """Return the class path of all servers from these jars, which must be installed."""
    KAFKA.check()
    return f"{KAFKA.folder / 'lib'}/*"


def spark_arguments() -> str:
    """Return spark-submit's arguments for a session with Spark's Kafka source."""
    return f"--conf spark.jars.excludes={','.join(setup_program().UNWANTED_JARS)}"
