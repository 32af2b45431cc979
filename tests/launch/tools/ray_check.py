"""The Ray autoscaler's schema, after its defaults; the file comes as JSON on standard input."""

import json
import sys

from ray.autoscaler._private.util import prepare_config, validate_config

validate_config(prepare_config(json.load(sys.stdin)))
