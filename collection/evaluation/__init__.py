"""Policies and teachers on held-out tasks: every task several times, and what that shows."""
