"""`seek`: questions from a file or a command line, answers on executors, files of answers."""
