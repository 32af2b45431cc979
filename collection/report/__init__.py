"""One page and one JSON file that tell what a run of the recipe did."""
