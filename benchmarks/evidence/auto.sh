#!/usr/bin/env bash
# A variant that chooses k while it runs, beside each static k through changing traffic, and what choosing costs.
# Usage: benchmarks/evidence/auto.sh [phases|overhead|deferred|all]                 (make evidence-auto)
# STACK names the stack; `smollm2-cpu` needs two quiet cores. ROUNDS and SECONDS_A_PHASE say how much is measured, PHASES
# and STATIC_K on which traffic and beside which k; SIDE_BY_SIDE=yes keeps all variants up. For what choosing costs, USERS and
# WORKLOAD say on which traffic; IN_TURN=yes has one engine at a time, where two do not fit.
# shellcheck source=benchmarks/evidence/common.sh
. "$(dirname "$0")/common.sh"
STACK=${STACK:-smollm2-h200}
RUN=${RUN:-auto-$STACK}
HERE=$(dirname "$0")/../utility
PYTHON=$(dirname "$OUTRIDER")/python

phases() {
  part "phases of traffic"
  mkdir -p "$RESULTS/$RUN"
  # 1: a promise was missed, which is a result.
  # shellcheck disable=SC2046,SC2086 # words
  "$PYTHON" "$HERE/phases.py" --stack "$STACK" --rounds "${ROUNDS:-2}" --phase-seconds "${SECONDS_A_PHASE:-10}" \
    ${PHASES:+--phases $PHASES} ${STATIC_K:+--static-k $STATIC_K} $([ "${SIDE_BY_SIDE:-no}" = no ] || echo --side-by-side) \
    --out "$RESULTS/$RUN/phases.jsonl" >"$RESULTS/$RUN/phases.md" || test $? -eq 1
  cat "$RESULTS/$RUN/phases.md"
}

overhead() {
  part "what choosing costs, k forced equal"
  mkdir -p "$RESULTS/$RUN"
  # shellcheck disable=SC2046,SC2086 # words
  "$PYTHON" "$HERE/overhead.py" --stack "$STACK" --seconds "${SECONDS_A_PHASE:-10}" --pairs "${PAIRS:-2}" \
    --starts "${STARTS:-2}" ${USERS:+--users $USERS} ${WORKLOAD:+--workload "$WORKLOAD"} \
    $([ "${IN_TURN:-no}" = no ] || echo --in-turn) \
    >"$RESULTS/$RUN/overhead.md" || test $? -eq 1
  cat "$RESULTS/$RUN/overhead.md"
}

# Whether a trained drafter is as good after passes that were put off; rounding as the engine rounds, and none.
deferred() {
  part "a drafter after k = 0"
  mkdir -p "$RESULTS/$RUN"
  # shellcheck disable=SC2086 # words
  for precision in "" "--float32 --eager"; do
    "$PYTHON" "$HERE/deferred_pass.py" --stack "$STACK" $precision >"$RESULTS/$RUN/deferred${precision:+-float32}.md" || test $? -eq 1
    cat "$RESULTS/$RUN/deferred${precision:+-float32}.md"
  done
}

case ${1:-all} in
  all) phases && overhead && deferred ;;
  phases | overhead | deferred) "$1" ;;
  *) echo "no part $1" >&2; exit 2 ;;
esac
