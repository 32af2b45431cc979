"""Makes the tiny base model: corpus, tokenizer, batches and training."""
