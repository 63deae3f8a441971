# shellcheck shell=bash
# Sourced by the other scripts: shows help, goes to the repository, and finds the environment.

# Takes the least and the most number of arguments, then the arguments of the script, which has defined
# `usage`. Where the most is ANY, there may be options among them. Help needs nothing installed.
ANY=1000
start() {
  local least=$1 most=$2 argument is_wrong
  shift 2
  is_wrong=$(($# < least || $# > most))
  for argument in "$@"; do
    case "$argument" in
      -h | --help)
        usage
        exit
        ;;
      -*) ((most == ANY)) || is_wrong=1 ;;
    esac
  done
  if ((is_wrong)); then
    usage >&2
    exit 2
  fi
  STARTED_IN="$PWD"
  CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." || exit
  source scripts/environment.sh
}

# Becomes a command of comas/commands, whose help is in comas/help.
run_comas() {
  local name=$1 least=$2
  shift 2
  usage() {
    sed "s|{command}|bash scripts/$(basename "$0")|" "$(dirname "$0")/../comas/help/$name.txt"
  }
  export COMAS_STARTED_IN="$PWD" # where paths may start
  start "$least" "$ANY" "$@"
  exec "$PYTHON_BIN" -m comas.commands "$name" "$@"
}

# Prints paths, which may start where the user stands, whole.
whole() {
  (cd "$STARTED_IN" && realpath -m -- "$@")
}

# Prints what a file says of itself, and the keys, with their defaults, that its dataclass Arguments
# defines. Nothing has to be installed for it.
print_help() {
  awk '
    NR == 1 { sub(/^"""/, ""); in_text = 1 }
    in_text { in_text = !sub(/"""$/, ""); if (in_text || $0) print; next }
    /^class Arguments:/ { print "\nKeys and their defaults:"; in_keys = 1; next }
    /^[^ ]/ { in_keys = 0 }
    in_keys && /^    [a-z_]+: .* = / { sub(/: [^=]* = /, "="); print "  " substr($0, 5) }
    in_keys && /^    """.*"""$/ { gsub(/^    """|"""$/, ""); print "      " $0 }
  ' "$1"
}
