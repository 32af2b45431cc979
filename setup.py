"""Packaging of rmsweb-jax. The versions that `make` installs are in constraints.txt."""

from setuptools import find_packages, setup

COLLECT = [
    "ada-url>=4",
    "google-genai>=3",
    # The egress proxy reads HTTP with it.
    "h11>=0.16",
    "httpx>=0.28",
    "httpx2>=2.12",
    "jinja2>=3.1",
    "json-repair>=0.50",
    "markdownify>=1",
    "matplotlib>=3.10",
    "miniwob>=1.1",
    # Mining decodes gigabytes of runs, and of them little.
    "msgspec>=0.20",
    "openai>=3",
    "psutil>=7",
    # Text of PDFs.
    "pypdf>=6",
    "rapidfuzz>=3.14",
    "selenium>=4.51",
    "tenacity>=9",
    "tldextract>=5",
]
TRAIN = [
    # The reward reads addresses and compares texts.
    "ada-url>=4",
    # Beside jax 0.11 it must be 0.12.12 or newer (0.12.8 cannot be imported there).
    "flax>=0.12.8",
    "grain>=0.2.18",
    "httpx>=0.28",
    # 0.11 is what current CUDA machines run; both are tested.
    "jax>=0.10.2,<0.12",
    "json-repair>=0.50",
    # Replies of the server that follow a JSON schema.
    "llguidance>=1.9",
    "optax>=0.2.8",
    "orbax-checkpoint>=0.12.8",
    "prometheus-client>=0.26",
    "rapidfuzz>=3.14",
    "safetensors>=0.8",
    "starlette>=1",
    "tenacity>=9",
    "tensorboardX>=2.6",
    "tokenizers>=0.23",
    # The chat and image code follows what this release computes; see tests/qwen3_vl.
    "transformers>=5.23,<6",
    "uvicorn>=0.50",
]
PARQUET = ["pyarrow>=22"]
DEV = [
    "chex>=0.1.92",
    "hypothesis>=6.170",
    "peft>=0.21",
    "pyright[nodejs]>=1.1.414",
    "pytest>=9",
    "pytest-httpserver>=1.1",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.8",
    "ruff>=0.17",
    # The independent reference of the parity tests.
    "torch==2.13.0",
]

# Curves to Weights & Biases as well, where config.wandb_project names a project.
WANDB = ["wandb>=0.20"]

setup(
    name="rmsweb-jax",
    version="0.1.0",
    description="Reflective collection, failure-mode mining, SFT and Salvage-DS RL for web agents, in JAX",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["rmsweb_jax*", "collection*", "configs*", "experiments*"]),
    package_data={
        "rmsweb_jax": ["tiny_base/*"],
        "collection": [
            "browser/*.js",
            "browser/guard/*.js",
            "browser/guard/etc_chromium/policies/managed/*.json",
            "agent/prompts/*.j2",
            "evaluation/dates/prompts/*.j2",
            "judges/prompts/*.j2",
            "mining/prompts/*.j2",
            "tasks/prompts/*.j2",
            "report/*.j2",
            "report/*.css",
        ],
    },
    install_requires=[
        "absl-py>=2.3",
        "array_record>=0.8.6",
        "ml_collections>=1.1",
        "numpy>=2",
        "orjson>=3.11",
        "pillow>=12",
        "pydantic>=2.13",
        "rich>=14",
    ],
    extras_require={
        "collect": COLLECT,
        "train": TRAIN,
        "tpu": [*TRAIN, "jax[tpu]>=0.10.2,<0.12"],
        "cuda": [*TRAIN, "jax[cuda13]>=0.10.2,<0.12"],
        "wandb": WANDB,
        "fleet": [*COLLECT, "ray>=2.60"],
        "parquet": PARQUET,
        "dev": [*COLLECT, *TRAIN, *PARQUET, *DEV],
    },
)
