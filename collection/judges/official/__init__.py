"""Judges of benchmarks, run from their authors' own code in the user's checkout."""
