"""Benchmarks as small adapters: from their own files to tasks, and what judges are told beside them."""
