"""Tasks without the agent's loop, for other harnesses: a Gymnasium environment and an OpenEnv server."""
