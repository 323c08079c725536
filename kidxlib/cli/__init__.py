"""The command `kidx`: one module a subcommand, a pool of processes, and files that carry results between them."""
