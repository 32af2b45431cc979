"""Ablations: the full recipe and its variants, trained with several seeds and compared."""
