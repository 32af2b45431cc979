"""Tasks bound to days that have passed, moved to days to come by one procedure (see `refresh`)."""
