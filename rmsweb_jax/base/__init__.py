"""How the tiny base is made: its tokenizer, its rows and its training."""
