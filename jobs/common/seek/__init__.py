"""`seek`: questions and answers that only Spark can read and write."""
