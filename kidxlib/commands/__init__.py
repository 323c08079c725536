"""The commands of `kidx` and ./spark-submit.sh: a module has a command's options, and its work with an engine and a
catalog. `command` makes both entries from it, and has what options derive from (`OnCatalog`, `WithoutCatalog`,
`WithOrWithoutCatalog`).
"""
