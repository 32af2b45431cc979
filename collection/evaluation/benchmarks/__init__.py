"""Benchmark adapters: read a benchmark's own files into tasks and notes for judges."""
