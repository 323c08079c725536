"""The Delta tables through Spark: opened, made, brought up to date, read, and written with retries."""
