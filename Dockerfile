# Images from the wheel:
#
#     docker build --tag rmsweb-jax .                       the demo on a CPU; its results are in ./runs:
#     docker run --rm --shm-size=1g --volume "$PWD/runs:/app/runs" rmsweb-jax
#
#     docker build --target=fleet --tag IMAGE .             browsers: collection, mining, evaluation
#     docker build --target=tpu --tag IMAGE .               training and serving on TPU
#     docker build --target=cuda --tag IMAGE .              and on NVIDIA GPUs with driver 580 or newer
#     docker build --target=cuda --build-arg=CUDA=cuda12 .  with an older driver (525 or newer)
#
# In the last three, `sh scripts/launch/stage.sh STAGE` runs a stage.
FROM python:3.13-slim-bookworm AS build
COPY . /source
RUN pip wheel --quiet --no-deps --wheel-dir=/wheel /source

FROM python:3.13-slim-bookworm AS base
COPY constraints.txt /
COPY --from=build /wheel /wheel
WORKDIR /app
COPY scripts/launch/stage.sh scripts/launch/

FROM base AS tpu
RUN pip install --no-cache-dir --constraint=/constraints.txt "$(ls /wheel/*.whl)[tpu,gcs]"

FROM base AS cuda
ARG CUDA=cuda13
RUN pip install --no-cache-dir --constraint=/constraints.txt "$(ls /wheel/*.whl)[train,gcs,s3]" "jax[$CUDA]"

FROM base AS browser
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium chromium-driver xvfb \
    && rm -rf /var/lib/apt/lists/*

FROM browser AS fleet
RUN pip install --no-cache-dir --constraint=/constraints.txt "$(ls /wheel/*.whl)[fleet,gcs,s3]"

FROM browser AS demo
RUN pip install --no-cache-dir --constraint=/constraints.txt "$(ls /wheel/*.whl)[collect,train]"
CMD ["python", "-m", "experiments.demo", "--variant=demo", "--workdir=runs/demo"]
