"""What a command does from its listing to its report, written once for all engines and for all that keep tables."""
