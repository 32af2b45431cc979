"""Real applications on loopback: Python's documentation, a django-oscar shop, a MediaWiki."""
