"""Numba, and where it keeps what it has compiled. The cache's key covers the sources of all that is compiled in, so
that an edit is never missed: in a checkout, a wheel and a zip alike.
"""
