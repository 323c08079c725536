"""The parts that all jobs share: session, engine, catalog tables, packaging, and ./spark-submit.sh itself."""
