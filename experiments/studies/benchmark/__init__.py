"""Speed and memory next to transformers + PEFT: the same work step by step, one process a side."""
