"""The Delta tables by way of Spark: opened, made, brought up to date, read, and written with retries."""
