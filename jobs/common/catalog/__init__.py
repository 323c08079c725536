"""The Delta tables through Spark: made, brought up to date, read, and written with retries."""
