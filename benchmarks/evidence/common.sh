# Sourced by the evidence scripts. Every part can be run again: what was measured is kept, what is missing is measured.
# OUTRIDER names the command; results lie where OUTRIDER_RESULTS says.
set -euo pipefail
OUTRIDER=${OUTRIDER:-.venv/bin/outrider}
RESULTS=${OUTRIDER_RESULTS:-results}
SHAPES=${SHAPES:-build/shapes}

part() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

# Outrider ends with 3 where figures are in doubt; they are kept, with the reason.
measured() { "$@" || test $? -eq 3; }

# each OPTION WORD...: the option before every word.
each() { local option=$1; shift; for word in "$@"; do printf -- '%s %s ' "$option" "$word"; done; }
