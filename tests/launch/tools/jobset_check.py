"""JobSet's models, made from its OpenAPI schema, and Kubernetes' strict schema for the jobs of the set.

The file comes as JSON on standard input.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet


def lost(given: Any, read: Any, path: str = "") -> Iterator[str]:
    """Names of keys that the models do not know: they leave them out."""
    if isinstance(given, dict):
        for key, value in given.items():
            if key in read:
                yield from lost(value, read[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list):
        for number, value in enumerate(given):
            yield from lost(value, read[number], f"{path}[{number}]")


config = json.load(sys.stdin)
read = JobsetV1alpha2JobSet.from_dict(config)
assert read is not None
if unknown := list(lost(config, read.to_dict())):
    sys.exit(f"unknown: {', '.join(unknown)}")
for job in config["spec"]["replicatedJobs"]:
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}
    kubernetes_validate.validate(whole, "1.33", strict=True)
