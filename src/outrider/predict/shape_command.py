"""`outrider shape`."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer
from rich.console import Console

from outrider.predict.commands import ConfigOption, read_config
from outrider.predict.errors import PredictError
from outrider.predict.shape_cut import MAX_MODEL_LEN, Machine, cut_config, cut_stack, write_shape
from outrider.preflight.shapes import reference
from outrider.stack import find_stack


def shape_command(  # noqa: PLR0913, PLR0917 - one parameter an option
    stack: Annotated[str, typer.Argument(help="Name of a shipped stack, or a YAML file.")],
    layers: Annotated[int, typer.Option(min=1, help="Decoder layers to keep.")],
    directory: Annotated[Path, typer.Option("--to", help="Where to; OUTRIDER_MODELS points here afterwards.")],
    accelerator: Annotated[str, typer.Option(help="GPU that it will run on.")] = "H200",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs, all used for tensor parallelism.")] = 1,
    vram_gib: Annotated[float, typer.Option(help="Memory of one GPU.")] = 139.8,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of every variant, e.g. NCCL_P2P_DISABLE=1.")
    ] = None,
    flags: Annotated[
        list[str] | None, typer.Option("--flag", metavar="NAME[=VALUE]", help="Engine flag of every variant.")
    ] = None,
    rank_of: Annotated[
        int, typer.Option(min=1, help="One GPU's part of tensor parallelism over so many, without all-reduce.")
    ] = 1,
    max_model_len: Annotated[int, typer.Option(min=256, help="Tokens of the longest sequence.")] = MAX_MODEL_LEN,
    name: Annotated[str, typer.Option(help="Of the stack; default: the target's, with the number of layers.")] = "",
    config: ConfigOption = None,
) -> None:
    """Write a target's shape cut to some layers, as configs and a stack: dummy weights show what a step costs."""
    chosen = find_stack(stack)
    given = read_config(config)
    if given is None:
        known = reference(chosen.target.model)
        given = json.loads(json.dumps(known.config)) if known else None
    if given is None:
        raise PredictError(
            f"the shape of {chosen.target.model} is not known", next_step="give its config.json with --config"
        )
    if rank_of > 1 and gpus > 1:
        raise PredictError(
            f"one GPU's part of {rank_of} is served on one GPU, not on {gpus}",
            next_step="leave out --gpus or --rank-of",
        )
    cut = cut_config(given, layers, rank_of)
    machine = Machine(accelerator, gpus, vram_gib, _variables(env or []), _pairs(flags or []), max_model_len, rank_of)
    text = cut_stack(chosen, cut, machine, name=name)
    console = Console(highlight=False)
    for file in write_shape(directory, chosen, cut, text, rank_of):
        console.print(str(file), soft_wrap=True)
    console.print(f"serve it: OUTRIDER_MODELS={directory} outrider campaign {file} --step-cost", soft_wrap=True)


def _pairs(texts: list[str]) -> dict[str, str]:
    """`NAME=VALUE` as a mapping; without a value, an empty one."""
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


def _variables(texts: list[str]) -> dict[str, str]:
    if bad := [text for text in texts if "=" not in text]:
        raise PredictError(f"{bad[0]!r} sets no variable", next_step="write --env NAME=VALUE")
    return _pairs(texts)
