"""Two places compared: a log dir and its copy, two replicas, or two sources of a catalog."""
