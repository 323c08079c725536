"""Numba, and its cache of compiled code (`compiler`). The cache's key covers the sources of all code that is compiled
in, so that no edit is missed, in a checkout, a wheel or a zip. `compiling` tells by a flag, which processes share,
whether a loop is being compiled. `machine` has what compiled code finds here: cores, instructions, C functions in
wheels.
"""
