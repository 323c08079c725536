"""Texts that people write and read: `times` and spans of time, the TOML files of users (`toml_file`), numbers with
nouns and quoted values (`words`).
"""
