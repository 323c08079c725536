"""What `kidx` and ./spark-submit.sh do: a command's options, and what it does with an engine and a catalog."""
