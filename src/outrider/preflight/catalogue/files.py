"""Findings about files: the same for a target and a drafter."""

from outrider.preflight.catalogue.kind import Kind

FILES = (
    Kind(
        "FILE001",
        "error",
        "config.json is missing",
        "The engine takes architecture and dimensions from config.json; without it nothing loads.",
        "Point to the directory that holds config.json, or fetch the repository again at its revision.",
    ),
    Kind(
        "FILE002",
        "error",
        "a JSON file cannot be read",
        "A file that must be a JSON object is truncated, not JSON, or another kind of value. "
        "Interrupted downloads and Git LFS pointers look like this.",
        "Fetch the named file again and compare its checksum with the repository's.",
    ),
    Kind(
        "FILE003",
        "error",
        "a shard of the index is missing",
        "model.safetensors.index.json names a file that is not there. The engine finds out after it has loaded "
        "the shards before it.",
        "Fetch the named shard, or the whole revision again.",
    ),
    Kind(
        "FILE004",
        "error",
        "a shard has the wrong size",
        "The header of a safetensors file says how long the file is. A shorter file was cut off while it was "
        "downloaded or copied; a longer one was overwritten in part.",
        "Fetch the named shard again and verify its checksum.",
    ),
    Kind(
        "FILE005",
        "error",
        "a safetensors header is malformed",
        "The length field, the JSON or an entry of the header breaks the format (unknown dtype, offsets out of "
        "order, sizes that do not match dtype x shape). Nothing behind the header was read.",
        "Fetch the file again. If its checksum is right, its author has to save it anew.",
    ),
    Kind(
        "FILE006",
        "error",
        "index and shards disagree",
        "A tensor is not in the shard that the index names, or a shard holds a tensor that the index leaves out. "
        "The engine loads some of them twice or not at all.",
        "Fetch index and shards of one revision; mixed revisions cause this.",
    ),
    Kind(
        "FILE007",
        "advisory",
        "no safetensors weights",
        "Only safetensors headers can be read without loading weights. Checkpoints in other formats may serve, "
        "but their tensors, sizes and vocabulary tables were not checked.",
        "Convert the weights to safetensors, or check the figures of this report by hand.",
    ),
    Kind(
        "FILE008",
        "info",
        "files not at hand",
        "Neither local files nor a remote look were available, so nothing was read from the checkpoint. "
        "Where the stack ships a reference of its config, shapes come from that; headers, tokenizer and "
        "templates were not checked.",
        "Give local files (OUTRIDER_MODELS), or run with --remote to read headers from the repository.",
    ),
    Kind(
        "FILE009",
        "error",
        "the project's own drafter is absent or damaged",
        "The variant names a drafter that lies in the project, and its files are not all there, or differ from the "
        "manifest that was written with them. Checkouts without their large files look like this.",
        "Restore the directory (git checkout), or fetch or train the drafter (`outrider train run`).",
    ),
)
