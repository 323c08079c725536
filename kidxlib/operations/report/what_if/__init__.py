"""What retention would do with other limits: a fixed ladder of them, decided as `kidx retention` decides."""
