#!/usr/bin/env bash
# SmolLM2-135M on one GPU: measure static variants, decide, serve what was emitted, and hold it against the best of them.
# Usage: benchmarks/evidence/smollm2.sh [campaign|decide|probe|client|all]      (make evidence-smollm2)
# shellcheck source=benchmarks/evidence/common.sh
. "$(dirname "$0")/common.sh"
RUN=h200-smollm2
OVERLAY=$RESULTS/$RUN/smollm2-h200-dynamic.yaml

campaign() {
  part "static variants"
  measured "$OUTRIDER" campaign smollm2-h200 --run $RUN
}

decide() {
  part "decision"
  test -e "$OVERLAY" || "$OUTRIDER" decide smollm2-h200 --cells "$RESULTS/$RUN/cells.jsonl" --workload chat \
    --json "$RESULTS/$RUN/decision.json" --emit "$OVERLAY"
}

probe() {
  part "the emitted schedule beside every static k, and what the dynamic path costs"
  # 1: the schedule is behind the best static variant, which is a result.
  "$OUTRIDER" probe "$OVERLAY" --run $RUN-probe --workload chat --repeats 3 \
    --concurrency 1 --concurrency 8 --concurrency 32 --concurrency 128 \
    --variant eagle3-k1 --variant eagle3-k3 --variant eagle3-k5 --variant eagle3-dyn3 --variant eagle3-dyn0 \
    || test $? -eq 1 -o $? -eq 3
  "$OUTRIDER" decide "$OVERLAY" --cells "$RESULTS/$RUN-probe/cells.jsonl" --workload chat \
    --probe "$RESULTS/$RUN-probe/probe.json" --json "$RESULTS/$RUN-probe/decision.json"
}

client() {
  part "our client beside the engine's own"
  "$OUTRIDER" serve smollm2-h200 baseline --port 8450
  for users in 8 32; do
    for round in 1 2 3; do
      file=$RESULTS/$RUN/client-c$users-$round.json
      test -e "$file" || "$OUTRIDER" verify-client http://127.0.0.1:8450 --model smollm2-135m --workload chat \
        --concurrency $users --requests $((users * 8)) --max-tokens 256 --json "$file" || true
    done
  done
  "$OUTRIDER" stop smollm2-h200 baseline
}

case ${1:-all} in
  all) campaign && decide && probe && client ;;
  campaign | decide | probe | client) "$1" ;;
  *) echo "no part $1" >&2; exit 2 ;;
esac
