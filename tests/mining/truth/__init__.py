"""Failed runs of tasks with their last critical step, found by replay.

`make` plays runs of MiniWoB++ and finds the truth in a browser, `make_apps` those of the applications, where
hand-written policies take over (`takeover`) and fail by mistakes (`erring`); `runs` reads what they left
(`work.jsonl.gz` to tune on, `report.jsonl.gz` to report on, split by page; `apps.jsonl.gz` is not made yet);
`score` compares a miner's choices with it.
"""
