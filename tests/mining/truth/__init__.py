"""Failed runs of MiniWoB++ tasks with their last critical step, found by replay.

`make` plays the runs and finds the truth in a browser; `runs` reads what it left (`work.jsonl.gz` to tune on,
`report.jsonl.gz` to report on, split by page); `score` compares a miner's choices with it.
"""
