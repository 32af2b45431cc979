"""Studies that made or measured parts of the project; they are not installed with it."""
