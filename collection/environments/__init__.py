"""Sites to act on that know their own reward."""
