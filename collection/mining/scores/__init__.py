"""The three components of S_total, each a matrix over (success step, localization step)."""
