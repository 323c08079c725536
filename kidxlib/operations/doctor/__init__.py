"""`kidx doctor`: what is installed, what this machine has, and which parts of kidx work here."""
