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

# beside_the_engines_client STACK MODEL WORKLOAD DIRECTORY REQUESTS_A_USER USERS...: TPOT of our client and the engine's own.
beside_the_engines_client() {
  local stack=$1 model=$2 workload=$3 directory=$4 requests=$5 users round file
  mkdir -p "$directory"
  "$OUTRIDER" serve "$stack" baseline --port 8450
  for users in "${@:6}"; do
    for round in 1 2 3; do
      file=$directory/client-c$users-$round.json
      # Another exit status than 0: they differ by more than is allowed, which is a result.
      test -e "$file" || "$OUTRIDER" verify-client http://127.0.0.1:8450 --model "$model" --workload "$workload" \
        --concurrency "$users" --requests $((users * requests)) --max-tokens 256 --json "$file" || true
    done
  done
  "$OUTRIDER" stop "$stack" baseline
}
