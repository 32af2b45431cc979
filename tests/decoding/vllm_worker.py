"""Runs in vLLM's environment: reads requests as JSON lines, writes seconds.

python vllm_worker.py FOLDER SAMPLES eager|compiled
"""

import io
import json
import os
import sys
import time
from base64 import b64decode

from PIL import Image


def main() -> None:
    folder, samples, mode = sys.argv[1:]
    # What vLLM prints is kept apart from the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=folder,
        dtype="float32",
        enforce_eager=mode == "eager",
        max_model_len=4_608,
        max_num_seqs=4 * int(samples),
        max_num_batched_tokens=4_608,
        limit_mm_per_prompt={"image": 1, "video": 0},
        seed=0,
    )
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        prompts = []
        for tokens, png in asked["prompts"]:
            prompt = {"prompt_token_ids": tokens}
            if png:
                prompt["multi_modal_data"] = {"image": Image.open(io.BytesIO(b64decode(png)))}
            prompts.append(prompt)
        sampling = SamplingParams(
            n=int(samples),
            max_tokens=asked["new"],
            min_tokens=asked["new"],
            temperature=1.0,
            ignore_eos=True,
            detokenize=False,
        )
        start = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        counts = {len(one.token_ids) for output in outputs for one in output.outputs}
        lengths = [len(output.prompt_token_ids) for output in outputs]
        answer = {"seconds": seconds, "counts": list(counts), "lengths": lengths}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
