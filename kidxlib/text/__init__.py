"""Texts that people write and read: `times`, TOML files, numbers with nouns and quoted values (`words`)."""
