"""The `kidx` command: one machine, no Spark and no JVM."""
