#!/usr/bin/env bash
# SmolLM2-135M on one GPU: measure static variants, decide, serve what was emitted, and hold it against the best of them.
# Usage: benchmarks/evidence/smollm2.sh [campaign|decide|probe|client|all]      (make evidence-smollm2)
# shellcheck source=benchmarks/evidence/common.sh
. "$(dirname "$0")/common.sh"
export STACK=${STACK:-smollm2-h200} RUN=${RUN:-h200-smollm2}
export WORKLOADS=${WORKLOADS:-chat code edit} BESIDE=${BESIDE:-eagle3-k1 eagle3-k3 eagle3-k5 eagle3-dyn3 eagle3-dyn0}

client() {
  part "our client beside the engine's own"
  beside_the_engines_client "$STACK" smollm2-135m chat "$RESULTS/$RUN" 8 8 32
}

case ${1:-all} in
  all) "$(dirname "$0")/schedule.sh" all && client ;;
  campaign | decide | probe) "$(dirname "$0")/schedule.sh" "$1" ;;
  client) client ;;
  *) echo "no part $1" >&2; exit 2 ;;
esac
