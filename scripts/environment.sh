# shellcheck shell=bash
# Sourced by the other scripts, in the repository's root: finds or makes the environment of the pinned
# requirements ($REQUIREMENTS where it is set, else requirements.txt where an NVIDIA GPU is, else
# requirements-cpu.txt), and sets VENV and PYTHON_BIN. When nothing changed since the last time it
# returns at once. Whatever runs from an environment holds VENV.lock, shared, and an installation holds
# it alone, so that none takes packages away from a program.

if [[ "$MACHTYPE" != x86_64-*linux* ]]; then
  echo "error: CoMAS runs on Linux on x86-64, not on $MACHTYPE" >&2
  exit 1
fi

# Trap: what is opened next would get the number of a standard stream that is closed (>&-).
[[ -e /dev/fd/0 ]] || exec 0</dev/null
[[ -e /dev/fd/1 ]] || exec 1>/dev/null
[[ -e /dev/fd/2 ]] || exec 2>/dev/null

PYTORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"

# Of CUDA 13, for which requirements.txt is built.
OLDEST_DRIVER=580

# That others may take to look whether the environment is ready.
SECONDS_OF_A_LOOK=5

VENV=.venv

# Prints the folder for a file of pins: .venv for the first that was used, and one of its own for any
# other. A .venv that was made by hand is left alone.
environment_of() {
  local first other="${1%.txt}"
  first="$(cat .venv/requirements.name 2>/dev/null || true)"
  if [[ "$first" == "$1" ]] || [[ -z "$first" && ! -e .venv/bin ]]; then
    printf '%s\n' .venv
  else
    printf '%s\n' ".venv-${other//\//+}"
  fi
}

# Debian's and Ubuntu's python3.12 has no ensurepip without the package python3.12-venv.
FITS="import ensurepip, sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))"

# Prints the Python to use: $PYTHON where it is set, else the environment's, else the first that fits.
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

# Prints the minor version of a Python, or nothing if it does not run. Every command asks, and of all
# that can be asked --version takes the least time (2 ms).
version_of() {
  local version
  version="$("$1" --version 2>/dev/null || true)"
  version="${version#Python }"
  printf '%s\n' "${version%.*}"
}

has_nvidia_gpu() {
  # Not by grep -q, which ends at the first of several lines: nvidia-smi then fails at the next.
  [[ $'\n'"$(nvidia-smi -L 2>/dev/null)" == *$'\n'GPU* ]]
}

# Fails, with what else to take, where the driver is too old for requirements.txt.
check_driver() {
  local driver
  read -r driver < <(nvidia-smi --query-gpu=driver_version --format=csv,noheader) || true
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

# Fails where the environment is a link to one that this checkout did not make, or to nothing. An empty
# folder may be filled.
check_link() {
  if [[ ! -L "$VENV" || "$(cat "$VENV/requirements.stamp" 2>/dev/null)" == *"  - $HERE" ]] ||
    { [[ -d "$VENV" ]] && ! compgen -G "$VENV/*" >/dev/null; }; then
    return
  fi
  cat >&2 <<ERROR
error: $HERE/$VENV is a link to $(readlink -m "$VENV"), which this checkout did not make.
An installation for this checkout would change it for whoever else uses it. Remove it from here, and
run this again to have one made (to have it on another disk, link $VENV to an empty folder): rm -r $VENV
ERROR
  return 1
}

# Passes pip's sources and certificates on to uv, which reads none of pip's configuration. Variables of
# uv that are set already stay. As pip does, uv then takes the best match of all sources.
share_sources_with_uv() {
  local section key value settings
  settings="$("$VENV/bin/python" -m pip config list)"
  for section in :env: install global; do # from strong to weak
    while IFS='=' read -r key value; do
      value="${value//\'/}"
      value="${value//\\n/ }"
      case "${key#"$section".}" in
        index-url) export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$value}}" ;;
        extra-index-url) export UV_INDEX="${UV_INDEX:-$value}" ;;
        find-links) export UV_FIND_LINKS="${UV_FIND_LINKS:-${value// /,}}" ;;
        no-index) [[ ! "${value,,}" =~ ^(1|on|t|true|y|yes)$ ]] || NO_INDEX=--no-index ;;
        trusted-host) export UV_INSECURE_HOST="${UV_INSECURE_HOST:-$value}" ;;
        cert) export SSL_CERT_FILE="${SSL_CERT_FILE:-$value}" ;;
        client-cert) export SSL_CLIENT_CERT="${SSL_CLIENT_CERT:-$value}" ;;
        proxy) export ALL_PROXY="${ALL_PROXY:-$value}" ;;
      esac
    done <<<"$settings"
  done
  [[ -z "${REQUESTS_CA_BUNDLE:-}" ]] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$REQUESTS_CA_BUNDLE}"
  export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
}

# Installs without dependencies: the file pins everything; see its head for why nothing is resolved. uv
# shows its progress, and where there is no terminal, lines of it.
install() {
  local uv=("$VENV/bin/uv" pip install --python "$VENV/bin/python" --no-deps ${NO_INDEX:+"$NO_INDEX"})
  if [[ -t 2 ]]; then
    "${uv[@]}" "$@"
  else
    "${uv[@]}" "$@" 2> >(sed -u '/^ [-+~] /d' >&2) # not every package once more
  fi
}

# The pinned CPU build comes from pip's configured sources where they offer it, else from
# PyTorch's own index; a source that cannot be reached is given up after some seconds.
install_cpu_torch() {
  if install --dry-run "$1" >/dev/null 2>&1; then
    return # with all the others
  fi
  echo "torch: pip's configured sources have no $1, trying PyTorch's CPU index" >&2
  UV_HTTP_TIMEOUT=20 UV_HTTP_RETRIES=1 install --index "$PYTORCH_CPU_INDEX" "$1" && return
  echo "error: $1 could not be installed for Python $(version_of "$VENV/bin/python"): neither" >&2
  echo "pip's configured sources nor $PYTORCH_CPU_INDEX offer it. Check the network, or put" >&2
  echo "the wheel in a folder and set PIP_FIND_LINKS to it, or name another Python with PYTHON=." >&2
  return 1
}

# Replaces the stamp: what was installed, and for which folder. Not in place: in a checkout that was
# copied by hard links, the original's file would change with it.
stamp() {
  printf '%s\n' "$1  - $HERE" >"$VENV/requirements.partial"
  mv -f "$VENV/requirements.partial" "$VENV/requirements.stamp"
}

# Makes the folder afresh, with uv. Until that is done its stamp says so.
make_environment() {
  local python=$1
  echo "environment: creating $VENV with $("$python" --version)"
  # What an environment's Python was made from, as that itself is removed.
  python="$("$python" -c 'import sys; print(sys._base_executable)')"
  stamp created
  find "$VENV/" -mindepth 1 -maxdepth 1 ! -name 'requirements.*' -exec rm -rf {} +
  "$python" -m venv "$(realpath "$VENV")" # it makes none through a link
  "$VENV/bin/python" -m pip install -q --no-user "$UV_PIN"
  # Its programs, and those that uv installs, find their Python wherever the folder is moved.
  "$VENV/bin/uv" venv -q --allow-existing --relocatable --python "$python" "$VENV"
}

# Makes the environment what the stamp says: all of it, or, in a checkout that was copied or moved, only
# where its own packages are found.
install_requirements() {
  local requirements=$1 digest=$2 python former="" torch folder
  python="$(find_python)"
  [[ ! -f "$VENV/requirements.stamp" ]] || former="$(cat "$VENV/requirements.stamp")"
  mkdir -p "$VENV"
  printf '%s\n' "$requirements" >"$VENV/requirements.partial"
  mv -f "$VENV/requirements.partial" "$VENV/requirements.name"
  if [[ "$former" == "created "* || "$(version_of "$VENV/bin/python")" != "$(version_of "$python")" ]] ||
    { [[ -n "$former" && "$former" != *"  - $HERE" ]] && ! grep -q '^relocatable = true' "$VENV/pyvenv.cfg"; }; then
    make_environment "$python"
    former=""
  fi
  share_sources_with_uv
  if [[ "$former" == "$digest "* ]]; then
    echo "environment: $VENV was made in ${former#*  - }, and is made to work here"
  else
    stamp unfinished
    echo "environment: installing $requirements into $VENV (about 4 GB, a minute or more)"
    if [[ "$VENV" != .venv ]]; then
      echo "environment: .venv stays as it is, for other pins ($(cat .venv/requirements.name 2>/dev/null ||
        echo unknown)): set REQUIREMENTS to that file to use it here, too"
    fi
    # What an installation that was interrupted left of packages: this file comes last.
    for folder in "$VENV"/lib/python*/site-packages/*.dist-info; do
      [[ -f "$folder/INSTALLER" || ! -d "$folder" ]] || rm -r "$folder"
    done
    "$VENV/bin/uv" --version >/dev/null 2>&1 || "$VENV/bin/python" -m pip install -q --no-user "$UV_PIN"
    if torch="$(grep '^torch==.*+cpu' "$requirements")"; then
      install_cpu_torch "$torch"
    fi
    # Else every process would compile what it imports (10 s with vllm).
    install ${PYTHONDONTWRITEBYTECODE:+--compile-bytecode} -r "$requirements" || return
  fi
  install -q --no-build-isolation --reinstall -e . || return
  stamp "$digest"
  echo "environment: ready"
}

# Whether the environment has the packages, for this folder, and a Python that they and $PYTHON fit.
is_ready() {
  local version
  [[ "$(cat "$VENV/requirements.stamp" 2>/dev/null)" == "$1  - $HERE" ]] || return
  version="$(version_of "$VENV/bin/python")"
  [[ -n "$version" && -d "$VENV/lib/python$version" ]] &&
    [[ -z "${PYTHON:-}" || "$(version_of "$PYTHON")" == "$version" ]]
}

# Holds the environment as it is, beside others who do, until this process ends. Waits for the end of an
# installation.
hold_environment() {
  # Over NFS a lock needs a file that is open for writing, which not everybody may.
  if ! { exec 9<>"$VENV.lock"; } 2>/dev/null && ! { exec 9<"$VENV.lock"; } 2>/dev/null; then
    check_writable "$1"
  fi
  local status=0
  flock --nonblock --shared 9 || status=$?
  if ((status > 1)); then
    echo "error: $HERE/$VENV.lock cannot be locked: use a disk that can, or install flock" >&2
    return 1
  elif ((status == 1)); then
    echo "environment: waiting for an installation into $VENV to end" >&2
    flock --shared 9
  fi
}

# Fails, with who can, where this user cannot install.
check_writable() {
  if ! { : >>"$VENV.lock"; } 2>/dev/null; then
    echo "error: $HERE/$VENV does not fit $1, and $(id -un) cannot install into it, as" >&2
    echo "$HERE/$VENV.lock cannot be written. Run this once as $(stat -c %U .), who owns" >&2
    echo "that folder, or use a clone of your own." >&2
    return 1
  fi
}

# Fails where something runs from the environment.
refuse_use() {
  local users
  users="$(exec 9>&-
    find /proc/[0-9]*/fd -lname "$(realpath "$VENV.lock")" 2>/dev/null | cut -d / -f 3 | sort -nu |
      grep -vx $$ | paste -sd ' ' || true)"
  cat >&2 <<ERROR
error: $HERE/$VENV is in use (process ${users:-of another machine}).
It does not fit $1, setup.py or the Python asked for, and an installation would take packages
away from what runs. Start this again when that has ended, or from another clone of the repository.
ERROR
  return 1
}

ensure_environment() {
  local requirements="${REQUIREMENTS:-requirements-cpu.txt}" digest
  if [[ -z "${REQUIREMENTS:-}" ]] && has_nvidia_gpu; then
    requirements=requirements.txt
  fi
  if [[ ! -f "$requirements" ]]; then
    echo "error: REQUIREMENTS=$requirements: $PWD has no such file of pins" >&2
    return 1
  fi
  HERE="$(pwd -P)"
  requirements="$(realpath --relative-to=. "$requirements")"
  digest="$(cat "$requirements" setup.py | sha256sum)"
  digest="${digest%% *}"
  VENV="$(environment_of "$requirements")"
  hold_environment "$requirements"
  while ! is_ready "$digest"; do
    check_writable "$requirements"
    check_link
    if [[ -z "${REQUIREMENTS:-}" && "$requirements" == requirements.txt ]]; then
      check_driver
    fi
    # Of several that start at once one gets it, and the others wait below for its end.
    if flock --timeout "$SECONDS_OF_A_LOOK" --exclusive 9; then
      if [[ "$(environment_of "$requirements")" == "$VENV" ]] && ! is_ready "$digest"; then
        UV_PIN="$(grep -h '^uv==' "$requirements" requirements-cpu.txt | head -n 1)"
        install_requirements "$requirements" "$digest" || return
      fi
    elif flock --nonblock --shared 9 && ! is_ready "$digest"; then
      refuse_use "$requirements"
    fi
    VENV="$(environment_of "$requirements")" # the first to come has .venv
    hold_environment "$requirements"
  done
}

ensure_environment
# shellcheck disable=SC2034  # read by the script that sources this
PYTHON_BIN="$PWD/$VENV/bin/python"
