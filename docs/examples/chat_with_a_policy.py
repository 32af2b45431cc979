"""Chat with a policy about a picture, and sample several replies.

    python docs/examples/chat_with_a_policy.py [MODEL]

MODEL is a model folder, a name on the Hugging Face Hub such as Qwen/Qwen3-VL-2B-Instruct, or (by default)
tiny_base, the small model that is in the package. tiny_base has learned what pages and replies look like, and
no tasks: expect the format of an agent's reply, and no sense in it.
"""

import sys

from PIL import Image, ImageDraw

from rmsweb_jax import Policy

policy = Policy.load(sys.argv[1] if len(sys.argv) > 1 else "tiny_base")

page = Image.new("RGB", (320, 192), "white")
ImageDraw.Draw(page).rectangle((100, 70, 220, 120), fill="lightgray", outline="black")
ImageDraw.Draw(page).text((140, 90), "Accept", fill="black")

print(policy.chat("Which button is on this page?", images=[page], max_new_tokens=64))

prompts = ["Click the button.", "Type your name."]
for prompt, replies in zip(prompts, policy.sample(prompts, n=2, max_new_tokens=32), strict=True):
    print(prompt, *replies, sep="\n  ")
