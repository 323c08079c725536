"""Commands of `kidx` that may have a catalog, where they are given none."""
