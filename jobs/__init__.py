"""The Spark jobs: one thin file per `spark-submit.sh` entry point."""
