"""Task files: reading, writing with a model, and the check against benchmarks."""
