"""The page: one HTML file with its data, its styles, its scripts and the library that draws, and no network."""
