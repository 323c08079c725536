"""Decompresses whole batches in compiled loops, with the C functions of each codec's library and without Python calls.
`kidxlib.format.codecs` reads the batches that these loops refuse.
"""
