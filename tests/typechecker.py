"""The runtime checker of shapes and types in annotations, for `pytest --jaxtyping-packages`."""

from beartype import BeartypeConf, beartype

# Python's numeric tower: an int is accepted where a float is annotated.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))
