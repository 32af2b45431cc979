"""Tasks before anybody does them: what they are, and that none is a benchmark's."""
