"""Index files are made sparser or denser, trimmed of zeros, or removed because nothing needs them."""
