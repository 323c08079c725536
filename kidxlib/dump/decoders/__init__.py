"""What `kafka-dump-log` prints of the records of Kafka's own topics, with the option for each of them."""
