"""The code that the DAG files share. It imports neither Spark nor the project's library: Airflow parses it quickly."""
