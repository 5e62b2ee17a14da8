#!/usr/bin/env bash
# The flagship's layer shapes with dummy weights: what a step costs by k and batch, on one GPU and on several.
# Usage: benchmarks/evidence/kimi_shape.sh [one|long|rank|two|full|budget|client|auto|schedule|overhead]  (make evidence-kimi-shape, ...)
# LAYERS and GPUS say how much of the target is served on how many GPUs; WAYS what joins them: nvlink, host; BATCHES how
# many decode together; KS which k beside 0, each other choice a run of its own; CONTEXT how long the prompts of `long`
# and of the second half of `full` are (FAR_BATCHES its batches); REPEATS how often; RUN another name for the run of `one`,
# `long` and `rank`; RANKS of how many GPUs `rank` serves one, and `auto`, `schedule` and
# `overhead`, too, where it is given.
# shellcheck source=benchmarks/evidence/common.sh
. "$(dirname "$0")/common.sh"
# NVLink multicast stays off: a program that dies with it can take the host's GPUs out of service.
QUIET=(--env NCCL_NVLS_ENABLE=0 --env VLLM_ALLREDUCE_USE_SYMM_MEM=0 --env TORCH_SYMM_MEM_DISABLE_MULTICAST=1
  --env NVSHMEM_DISABLE_NVLS=1)

shape() { # NAME LAYERS GPUS OPTION...
  "$OUTRIDER" shape kimi-k2.5-rtx6000x8 --layers "$2" --gpus "$3" --accelerator "${ACCELERATOR:-H200}" \
    --vram-gib "${VRAM_GIB:-139.8}" --name "$1" --to "$SHAPES/$1" "${@:4}" >/dev/null
  export OUTRIDER_MODELS=$SHAPES/$1
  STACK=$SHAPES/$1/$1.yaml
}

cost() { # RUN OPTION...
  measured "$OUTRIDER" campaign "$STACK" --step-cost --run "$1" --requests 4 --max-tokens 128 --repeats "${REPEATS:-2}" "${@:2}"
}

# Prompts as long as those come from the prefix cache, or reading them would disturb the steps.
far() { # NAME LAYERS GPUS OPTION...
  shape "$@" --max-model-len $((CONTEXT + 4096)) --flag enable-prefix-caching
}

profile() { # RUN VARIANT BATCH; PROFILE=no leaves it out
  local file=$RESULTS/$1/profile-$2-b$3.json
  if [ "${PROFILE:-yes}" = no ] || [ -e "$file" ]; then return; fi
  "$OUTRIDER" profile capture "$STACK" "$2" --batch "$3" --steps 24 --workload random-64 \
    --to "$RESULTS/$1/traces-$2-b$3" --json "$file" || echo "no profile of $2 at batch $3" >&2
}

one() {
  part "8 layers on one GPU"
  shape kimi-shape8-h200 "${LAYERS:-8}" 1
  # shellcheck disable=SC2046,SC2086 # words
  cost "${RUN:-h200-kimi-shape}" $(each --k ${KS:-1 3 5 7}) $(each --concurrency ${BATCHES:-1 2 4 8 16 32 64 128})
  profile "${RUN:-h200-kimi-shape}" baseline 1
}

long() {
  CONTEXT=${CONTEXT:-16384}
  part "8 layers on one GPU, $CONTEXT tokens of context"
  far "kimi-shape8-h200-${CONTEXT}t" "${LAYERS:-8}" 1
  # shellcheck disable=SC2046,SC2086 # words
  cost "${RUN:-h200-kimi-shape-${CONTEXT}t}" --workload "random-$CONTEXT" $(each --k ${KS:-3}) $(each --concurrency ${BATCHES:-1 4 16 32})
}

# What each of eight GPUs would do, at full depth, without the other seven: everything of a step but all-reduce.
part_of() {
  shape "kimi-rank-of-$1-h200" "${LAYERS:-61}" 1 --rank-of "$1"
}

eight_or_part() { if [ -n "${RANKS:-}" ]; then part_of "$RANKS"; else shape kimi-shape8-h200 8 1; fi; }

rank() {
  part "one GPU's part of ${RANKS:-8}, ${LAYERS:-61} layers"
  part_of "${RANKS:-8}"
  # shellcheck disable=SC2046,SC2086 # words
  cost "${RUN:-h200-kimi-rank}" $(each --k ${KS:-1 3}) $(each --concurrency ${BATCHES:-1 2 4 8 16 32 64 128})
  profile "${RUN:-h200-kimi-rank}" baseline 1
}

several() { # NAME LAYERS GPUS BATCHES; with CONTEXT, prompts of that length
  local name=$1 layers=$2 gpus=$3 way run write=shape options=()
  if [ -n "${CONTEXT:-}" ]; then name=$name-${CONTEXT}t write=far options=(--workload "random-$CONTEXT"); fi
  for way in ${WAYS:-nvlink host}; do
    part "$layers layers on $gpus GPUs, joined by $way${CONTEXT:+, $CONTEXT tokens of context}"
    case $way in
      nvlink) "$write" "$name-nvlink" "$layers" "$gpus" "${QUIET[@]}" ;;
      # The engine's own all-reduce copies between GPUs whatever NCCL is told, so it is off as well.
      host) "$write" "$name-host" "$layers" "$gpus" "${QUIET[@]}" --env NCCL_P2P_DISABLE=1 --flag disable-custom-all-reduce ;;
      *) echo "no way $way" >&2; exit 2 ;;
    esac
    run=h200-$name-$way
    if [ "${KS:-3}" != 3 ]; then run=$run-k${KS// /-} PROFILE=no; fi
    # shellcheck disable=SC2046,SC2086 # words
    cost "$run" "${options[@]}" $(each --k ${KS:-3}) $(each --concurrency $4)
    if [ -z "${CONTEXT:-}" ]; then profile "$run" baseline 1; fi
  done
}

budget() {
  part "an expert budget at k=3, 8 layers on one GPU"
  shape kimi-shape8-h200 8 1
  # The shipped stack of the same shape has the variants; it is served from the same directory.
  # shellcheck disable=SC2046 # words
  measured "$OUTRIDER" campaign kimi-shape8-h200 --waves --run h200-kimi-budget --requests 4 --max-tokens 128 --repeats 1 \
    $(each --variant static3 static3-b384 static3-b192 static3-b96 static3-b48 census) $(each --concurrency 1 8 32 128)
}

# Steps of this shape repeat within 1 %, which a small model's on a busy host do not.
client() {
  part "our client beside the engine's own, 8 layers on one GPU"
  shape kimi-shape8-h200 8 1
  # shellcheck disable=SC2086 # words
  beside_the_engines_client kimi-shape8-h200 kimi-shape8 random-64 "$RESULTS/h200-kimi-client" 4 ${BATCHES:-8 32}
}

# As extraction, chat, code and long prose differ: what is accepted is set, not measured (accepted/drafted at k=3: 73, 34, 54, 18 %).
TRAFFIC="random-64@1~0.85/0.72/0.62 random-64@8~0.55/0.3/0.17 random-64@32~0.72/0.52/0.38 random-1024@32~0.36/0.13/0.05"

auto() {
  part "a variant that chooses k as users come and go, on one GPU${RANKS:+, its part of $RANKS}"
  eight_or_part
  STACK=$STACK RUN=${RUN:-h200-kimi-auto} SECONDS_A_PHASE=${SECONDS_A_PHASE:-16} \
    PHASES=${PHASES:-$TRAFFIC} STATIC_K=${STATIC_K:-1 3 5} \
    "$(dirname "$0")/auto.sh" phases
}

# From static k to a schedule, served and held against them.
schedule() {
  part "a schedule and whether it holds, on one GPU${RANKS:+, its part of $RANKS}"
  eight_or_part
  STACK=$STACK RUN=${RUN:-h200-kimi-schedule} WORKLOAD=random-64 VARIANTS="baseline eagle3-k1 eagle3-k3" REPEATS=${REPEATS:-2} \
    BESIDE="eagle3-k1 eagle3-k3 eagle3-dyn0" "$(dirname "$0")/schedule.sh" all
}

# What choosing costs, k forced equal, on the same shape.
overhead() {
  part "the controller's own cost, on one GPU${RANKS:+, its part of $RANKS}"
  eight_or_part
  STACK=$STACK RUN=${RUN:-h200-kimi-auto} SECONDS_A_PHASE=${SECONDS_A_PHASE:-8} IN_TURN=yes WORKLOAD=random-64 \
    STARTS=${STARTS:-2} PAIRS=${PAIRS:-1} USERS=${USERS:-1 8} "$(dirname "$0")/auto.sh" overhead
}

two() { several kimi-shape8-tp2 "${LAYERS:-8}" "${GPUS:-2}" "${BATCHES:-1 8 32 128}"; }
# k = 0 and 3 first, since each start of an engine costs minutes; then KS="1 5".
full() {
  local context=${CONTEXT:-16384}
  CONTEXT='' several kimi-full "${LAYERS:-61}" "${GPUS:-8}" "${BATCHES:-1 2 4 8 16 32 64 128}"
  CONTEXT=$context several kimi-full "${LAYERS:-61}" "${GPUS:-8}" "${FAR_BATCHES:-1 4 16 32}"
}

case ${1:-one} in
  one | long | rank | two | full | budget | client | auto | schedule | overhead) "$1" ;;
  *) echo "no part $1" >&2; exit 2 ;;
esac
