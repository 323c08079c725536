"""What a cluster and a release are given: the environment of the executors, the archive of the code, both together."""
