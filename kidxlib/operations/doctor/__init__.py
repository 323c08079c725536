"""`kidx doctor`: what is installed, what this machine has, and what of kidx works here."""
