"""Speed and memory beside transformers + PEFT: the same work, step by step in turns, a process a side."""
