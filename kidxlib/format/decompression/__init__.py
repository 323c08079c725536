"""What compressed batches hold, decompressed whole and in compiled loops: each codec by its library's own C function,
and no batch costs a call of Python's. What these loops do not take, `kidxlib.format.codecs` reads.
"""
