"""`seek`: what only Spark reads and writes of questions and answers."""
