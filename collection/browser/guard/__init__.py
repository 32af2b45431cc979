"""Egress control of a browser: one URL policy, applied wherever a request can leave, and redaction."""
