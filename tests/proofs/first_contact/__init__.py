"""First contact: pages, disks and settings of others, met by the real collector and trainer.

A module measures one subject. Its `main` prints and returns a page of Markdown; afterwards it raises
AssertionError if what the page shows does not hold.
"""
