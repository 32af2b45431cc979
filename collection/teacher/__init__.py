"""The scripted teacher of the offline demo: MiniWoB++ tasks from the prompt, seeded mistakes."""
