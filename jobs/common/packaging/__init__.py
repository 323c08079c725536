"""Packages for a cluster and for a release: the environment of the executors, the archive of the code, and both."""
