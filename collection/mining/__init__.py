"""Failure-mode mining: which decision of a successful run is worth practising (RMSWeb, section 3.3)."""
