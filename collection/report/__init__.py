"""Reports on a run of the recipe: a page, a JSON file, and the paper's tables."""
