# Airflow with this provider, Java and Spark's jars. Build from the root of the checkout:
#   docker build -f docker/airflow.Dockerfile -t lakecdc/airflow:0.1.0 .

FROM python:3.11.13-slim-bookworm AS wheel
WORKDIR /source
COPY setup.cfg pyproject.toml LICENSE README.md ./
COPY airflow_provider_lakecdc airflow_provider_lakecdc
COPY spark_jobs spark_jobs
RUN pip wheel --no-cache-dir --no-deps -w /wheel .

# Not the apache/airflow image: its hundred providers do not fit the versions this project is tested with.
FROM python:3.11.13-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends curl openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home airflow \
    && install -d -o airflow /opt/airflow
COPY requirements.lock /tmp/requirements.lock
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.lock
COPY --from=wheel /wheel/*.whl /tmp/wheel/
RUN pip install --no-cache-dir --no-deps /tmp/wheel/*.whl
COPY dags /opt/lakecdc/dags

USER airflow
ENV AIRFLOW_HOME=/opt/airflow PYTHONUNBUFFERED=1
# Spark's jars become part of the image, or every new container would fetch them.
RUN touch /tmp/nothing.py \
    && spark-submit --master "local[1]" --packages \
       org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.apache.iceberg:iceberg-aws-bundle:1.12.0,org.xerial:sqlite-jdbc:3.47.1.0 \
       /tmp/nothing.py
EXPOSE 8080
CMD ["airflow", "standalone"]
