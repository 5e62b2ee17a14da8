"""Findings about memory."""

from outrider.preflight.catalogue.kind import Kind

MEMORY = (
    Kind(
        "MEM001",
        "error",
        "weights do not fit",
        "Weights, buffers and activations need more than VRAM x utilisation on one GPU: the engine ends at "
        "start-up, after loading.",
        "Use more GPUs, a smaller format of the weights, or a higher `memory.gpu_utilization`.",
    ),
    Kind(
        "MEM002",
        "error",
        "one request of the served length does not fit",
        "The engine refuses to start when its KV cache holds fewer tokens than max_model_len.",
        "Lower `target.max_model_len`, raise `memory.gpu_utilization`, or use a smaller KV cache dtype.",
    ),
    Kind(
        "MEM003",
        "advisory",
        "utilisation leaves no room for communication buffers",
        "NCCL allocates outside the engine's share; at 0.95 and above, allocation failures have been seen on "
        "multi-GPU nodes.",
        "Set `memory.gpu_utilization` to 0.94 or less.",
    ),
    Kind(
        "MEM004",
        "info",
        "memory estimate",
        "Where the memory of one GPU goes, and the largest context x concurrency that its KV cache holds.",
        "Knobs by effect: gpu_utilization, kv_cache_dtype, parallel sizes, max-num-batched-tokens, max_num_seqs.",
    ),
    Kind(
        "MEM005",
        "info",
        "memory not estimated",
        "Neither headers nor a config were at hand, or the stack does not say how much memory a GPU has.",
        "Give local files or --remote, and `node.vram_gib`.",
    ),
    Kind(
        "MEM006",
        "advisory",
        "KV cache is not set for the CPU build",
        "Without `memory.cpu_kv_gib` the CPU engine takes half of the machine's memory.",
        "Set `memory.cpu_kv_gib`.",
    ),
    Kind(
        "MEM007",
        "advisory",
        "weights are not what the stack says",
        "`weight_gb` drives the progress bar and the start-up deadline; it differs from the headers by more than 10 %.",
        "Correct `weight_gb` to the figure in the evidence.",
    ),
)
