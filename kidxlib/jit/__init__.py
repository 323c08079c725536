"""Numba, and its cache of compiled code. The cache's key covers the sources of all code that is compiled in, so that no
edit is missed, in a checkout, a wheel or a zip.
"""
