#!/usr/bin/env bash
# SmolLM2-135M on one GPU: measure static variants, decide, serve what was emitted, and hold it against the best of them.
# Usage: benchmarks/evidence/smollm2.sh [campaign|decide|probe|client|all]      (make evidence-smollm2)
# shellcheck source=benchmarks/evidence/common.sh
. "$(dirname "$0")/common.sh"
STACK=${STACK:-smollm2-h200}
RUN=${RUN:-h200-smollm2}
LOADS=${LOADS:-1 8 32 128}
WORKLOADS=${WORKLOADS:-chat code edit}
WORKLOAD=${WORKLOAD:-chat} # whose acceptance the schedule follows
BESIDE=${BESIDE:-eagle3-k1 eagle3-k3 eagle3-k5 eagle3-dyn3 eagle3-dyn0}
OVERLAY=$RESULTS/$RUN/smollm2-h200-dynamic.yaml

campaign() {
  part "static variants"
  # shellcheck disable=SC2046,SC2086 # words
  measured "$OUTRIDER" campaign "$STACK" --run "$RUN" $(each --workload $WORKLOADS)
}

decide() {
  part "decision"
  test -e "$OVERLAY" || "$OUTRIDER" decide "$STACK" --cells "$RESULTS/$RUN/cells.jsonl" --workload "$WORKLOAD" \
    --json "$RESULTS/$RUN/decision.json" --emit "$OVERLAY"
}

probe() {
  part "the emitted schedule beside every static k, and what the dynamic path costs"
  # 1: the schedule is behind the best static variant, which is a result.
  # shellcheck disable=SC2046 # words
  "$OUTRIDER" probe "$OVERLAY" --run "$RUN-probe" --workload "$WORKLOAD" --repeats "${REPEATS:-3}" \
    $(each --concurrency $LOADS) $(each --variant $BESIDE) || test $? -eq 1 -o $? -eq 3
  "$OUTRIDER" decide "$OVERLAY" --cells "$RESULTS/$RUN-probe/cells.jsonl" --workload "$WORKLOAD" \
    --probe "$RESULTS/$RUN-probe/probe.json" --json "$RESULTS/$RUN-probe/decision.json"
}

client() {
  part "our client beside the engine's own"
  beside_the_engines_client "$STACK" smollm2-135m chat "$RESULTS/$RUN" 8 8 32
}

case ${1:-all} in
  all) campaign && decide && probe && client ;;
  campaign | decide | probe | client) "$1" ;;
  *) echo "no part $1" >&2; exit 2 ;;
esac
