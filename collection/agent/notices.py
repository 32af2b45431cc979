"""One-line notices of the loop inside `<agent_state>`."""

DONE_ONLY = "Only done is allowed now: say what was achieved and whether it is all that was asked."
NO_ACTION = "Your last reply had no action: give at least one."
