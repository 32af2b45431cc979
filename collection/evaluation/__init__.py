"""Evaluates policies and teachers on held-out tasks: repeated runs, rates with intervals, comparisons."""
