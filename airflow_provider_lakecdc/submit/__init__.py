"""Submit a job to Spark, follow it, and turn its report into what Airflow keeps."""
