"""Date refresh: moves past dates in date-bound tasks into the future by one fixed procedure."""
