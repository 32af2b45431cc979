"""Real applications with tasks: installed once, served on loopback, set back between episodes."""
