"""Findings about CUDA graphs."""

from outrider.preflight.catalogue.kind import Kind

GRAPHS = (
    Kind(
        "GRAPH001",
        "advisory",
        "largest decode steps have no CUDA graph",
        "A decode step computes k+1 tokens for each request, and a step of more tokens than the largest captured size "
        "runs eagerly: it pays the launch of every kernel. The engine captures up to twice its largest decode step, "
        "but no more than 512 tokens (1024 on SM100), and does not go beyond that for speculation "
        "(`_set_cudagraph_sizes`, vllm/config/vllm.py, 0.32 and 0.33).",
        "Raise `max_cudagraph_capture_size` in `compilation-config` to (k+1) x `memory.max_num_seqs`, or lower "
        "`memory.max_num_seqs`.",
    ),
)
