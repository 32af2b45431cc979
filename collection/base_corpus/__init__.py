"""The tiny base's corpus: generated and recorded pages, and grounding questions about them."""
