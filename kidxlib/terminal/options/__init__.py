"""What a person types: options that commands and jobs share, and what their values stand for."""
