"""The tiny base model's corpus: generated and recorded pages, and grounding questions about them."""
