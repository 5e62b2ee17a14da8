#!/usr/bin/env bash
# From static variants to a schedule and whether it holds: measure, decide, serve what was emitted beside every static k.
# Usage: STACK=... RUN=... benchmarks/evidence/schedule.sh [campaign|decide|probe|all]
# VARIANTS are measured, the stack's own if not given; WORKLOADS says on what, WORKLOAD whose acceptance the schedule follows;
# LOADS how many users; BESIDE what else is probed; REPEATS how often.
# shellcheck source=benchmarks/evidence/common.sh
. "$(dirname "$0")/common.sh"
LOADS=${LOADS:-1 8 32 128}
WORKLOAD=${WORKLOAD:-chat}
OVERLAY=$RESULTS/$RUN/$(basename "$STACK" .yaml)-dynamic.yaml

campaign() {
  part "static variants"
  # shellcheck disable=SC2046,SC2086 # words
  measured "$OUTRIDER" campaign "$STACK" --run "$RUN" $(each --workload ${WORKLOADS:-$WORKLOAD}) $(each --concurrency $LOADS) \
    $(each --variant ${VARIANTS:-})
}

decide() {
  part "decision"
  test -e "$OVERLAY" || "$OUTRIDER" decide "$STACK" --cells "$RESULTS/$RUN/cells.jsonl" --workload "$WORKLOAD" \
    --json "$RESULTS/$RUN/decision.json" --emit "$OVERLAY"
}

probe() {
  part "the emitted schedule beside every static k, and what the dynamic path costs"
  # 1: the schedule is behind the best static variant, which is a result.
  # shellcheck disable=SC2046,SC2086 # words
  "$OUTRIDER" probe "$OVERLAY" --run "$RUN-probe" --workload "$WORKLOAD" --repeats "${REPEATS:-3}" \
    $(each --concurrency $LOADS) $(each --variant $BESIDE) || test $? -eq 1 -o $? -eq 3
  "$OUTRIDER" decide "$OVERLAY" --cells "$RESULTS/$RUN-probe/cells.jsonl" --workload "$WORKLOAD" \
    --probe "$RESULTS/$RUN-probe/probe.json" --json "$RESULTS/$RUN-probe/decision.json"
}

case ${1:-all} in
  all) campaign && decide && probe ;;
  campaign | decide | probe) "$1" ;;
  *) echo "no part $1" >&2; exit 2 ;;
esac
