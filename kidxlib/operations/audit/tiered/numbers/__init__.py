"""Numbers for people: what tiered topics take on both sides, what is to be copied yet, what settings would free."""
