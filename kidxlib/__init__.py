"""The shared library: Kafka segments and their sparse indexes, without Spark, without a broker."""
