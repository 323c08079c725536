"""The command `kidx`: its subcommands' names, each imported when it is called."""
