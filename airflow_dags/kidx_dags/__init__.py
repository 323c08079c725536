"""What the DAG files share. They import neither Spark nor the project's library, so they are read in no time."""
