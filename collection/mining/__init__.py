"""Failure-mode mining: finds the decisions that failed runs got wrong (RMSWeb, section 3.3)."""
