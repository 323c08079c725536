"""Commands of `kidx` on a catalog: they need packages that the wheel brings only with its extra."""
