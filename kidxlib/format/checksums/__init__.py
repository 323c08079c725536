"""The checksums of Kafka's logs and of object stores, for Python and for compiled loops."""
