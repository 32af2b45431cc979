"""The recipe and its variants beside each other: what each training came to, and the table of all."""
