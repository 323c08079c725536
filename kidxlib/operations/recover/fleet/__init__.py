"""A fleet's next starts, from a catalog of its brokers' snapshots: how long each log dir takes alone and with kidx."""
