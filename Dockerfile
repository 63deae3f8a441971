# Images for CPU and for CUDA 13, from the pinned requirements. Not built yet: the lines that install are
# those of a bare machine, which were run.
#
#   docker build --target cpu -t comas:cpu .        docker build --target cuda -t comas:cuda .
#   kept="-v $PWD/saves:/comas/saves -v $PWD/data:/comas/data -v $HOME/.local/state/comas:/root/.local/state/comas"
#   docker run --rm $kept comas:cpu bash scripts/train_comas.sh
#   docker run --rm --gpus all --shm-size 32g $kept -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \
#     comas:cuda bash scripts/train_comas.sh configs/comas.yaml
#
# ~/.local/state/comas holds the key that seals runs: without it no other container resumes them.
#
# Docker allows no namespaces inside a container. Programs that models write need them:
#   --security-opt seccomp=unconfined --security-opt apparmor=unconfined
# or run with less isolation: verification.sandbox=allow_degraded.

FROM ubuntu:24.04 AS cpu
RUN apt-get update \
  && apt-get install -y --no-install-recommends build-essential ca-certificates git python3.12-dev python3.12-venv \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /comas
COPY . .
ENV REQUIREMENTS=requirements-cpu.txt
RUN bash -c 'set -e; source scripts/environment.sh'

FROM nvidia/cuda:13.0.1-devel-ubuntu24.04 AS cuda
RUN apt-get update \
  && apt-get install -y --no-install-recommends build-essential ca-certificates git python3.12-dev python3.12-venv \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /comas
COPY . .
ENV REQUIREMENTS=requirements.txt
RUN bash -c 'set -e; source scripts/environment.sh'
