# The demo on a CPU, from the wheel; its results are in ./runs:
#
#     docker build --tag rmsweb-jax .
#     docker run --rm --shm-size=1g --volume "$PWD/runs:/app/runs" rmsweb-jax
FROM python:3.11-slim-bookworm AS build
COPY . /source
RUN pip wheel --quiet --no-deps --wheel-dir=/wheel /source

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium chromium-driver \
    && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /
COPY --from=build /wheel /wheel
RUN pip install --no-cache-dir --constraint=/constraints.txt "$(ls /wheel/*.whl)[collect,train]" \
    && rm -r /wheel
WORKDIR /app
CMD ["python", "-m", "experiments.demo", "--variant=demo", "--workdir=runs/demo"]
