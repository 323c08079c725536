"""The command `kidx` itself (`main`): its subcommands' names, each imported when it is called."""
