"""The commands of `kidx` and of ./spark-submit.sh: a file for each command, named as it (`build`, `seek`, `verify`, …;
`verify_copy` is an old spelling). It has the command's class (`BuildCommand`), whose fields are the options, and the
function that does the work with an engine and a catalog (`run_build`); `dump` and `doctor` are functions of click. Some
also show the results. `command` has what is the same in all: it declares such a field (`option`, `parameter`), has the
classes that others derive from (`OnCatalog`, `WithoutCatalog`, `WithOrWithoutCatalog`), makes both entries from a
class, opens workers and a catalog, runs a former option, and reports how a run ended (`--json-line`, `--metrics-file`).
"""
