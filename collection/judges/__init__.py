"""Who decides whether an episode succeeded, where its environment cannot."""
