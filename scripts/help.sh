# shellcheck shell=bash
# Sourced by scripts whose keys are those of a Python file.

# Prints what the first file says of itself, and the keys, with their defaults, that the dataclasses of
# all files define. Nothing has to be installed for it.
print_help() {
  awk '
    NR == 1 { sub(/^"""/, ""); in_text = 1 }
    in_text { in_text = !sub(/"""$/, ""); if (in_text || $0) print; next }
    /^class (Arguments|Assumptions|Plans|Repeated)[(:]/ {
      if (!num_classes++) print "\nKeys and their defaults:"
      in_keys = 1
      is_new = 0
      next
    }
    /^[^ ]/ { in_keys = 0 }
    in_keys && /^    [a-z_]+: .* = / {
      key = $1
      sub(/:$/, "", key)
      sub(/^    [a-z_]+: [^=]* = /, "")
      is_new = !seen[key]++ # the first file has the last word
      if (is_new) printf "  %s=%s\n", key, $0
    }
    in_keys && is_new && /^    """.*"""$/ { gsub(/^    """|"""$/, ""); print "      " $0 }
  ' "$@"
}
