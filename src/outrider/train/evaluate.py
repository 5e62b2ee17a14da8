"""Offline acceptance of a head on extracted samples: how often it names the target's next token, by draft step.

Runs in the training interpreter. The figures are *conditional* (step i counts where steps before it were right),
teacher-forced as in training, against the tokens that the target really wrote, greedily: exactly what verification
accepts. (The accuracies that speculators logs are against the target's argmax *within* the draft vocabulary, which is
easier.) The share of answer tokens that the draft vocabulary holds is an upper bound and is measured too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from datasets import load_from_disk
from hs_connectors import FileTransfer
from speculators.models.eagle3.core import Eagle3DraftModel
from speculators.models.eagle3.data import shift_batch
from speculators.models.utils import GEMMA_STYLE_FINAL_NORM_MODEL_TYPES
from speculators.train.data import ArrowDataset, CollateFn
from speculators.utils.loading import load_model_layers
from transformers import AutoConfig

from outrider.train.accept import accepted
from outrider.train.tensors import read_header


def _model(checkpoint: Path, target: str, device: torch.device) -> Eagle3DraftModel:
    config = Eagle3DraftModel.config_class.from_pretrained(checkpoint)
    config.transformer_layer_config._attn_implementation = "sdpa"  # noqa: SLF001
    config.speculators_config.verifier.name_or_path = target
    model = Eagle3DraftModel.from_pretrained(checkpoint, config=config)
    if "embed_tokens.weight" not in read_header(checkpoint / "model.safetensors"):
        # An exported head borrows the target's; transformers would fill the gap with random numbers, silently.
        [embedding] = load_model_layers(["embed_tokens.weight"], target).values()
        model.embed_tokens.load_state_dict({"weight": embedding})
    return model.to(device).eval()


def _coverage(data: Path, t2d: torch.Tensor) -> float:
    """Share of answer tokens that the draft vocabulary holds."""
    inside = total = 0
    for row in load_from_disk(str(data)).with_format("torch"):
        answer = row["input_ids"][row["loss_mask"].bool()]
        inside += int(t2d[answer].sum())
        total += answer.numel()
    return inside / total if total else 0.0


def agreement(data: Path, hidden_states: Path, target: str) -> float:
    """Share of greedy answer tokens that the stored last hidden state of the token before names.

    The target wrote these tokens as its argmax, so its own last hidden state must give them again; states of another
    row, layer or batch do not. Kernels of another batch size flip a few near ties.
    """
    names = ("embed_tokens.weight", "lm_head.weight", "model.norm.weight")
    weights = load_model_layers(list(names), target)
    projection = weights.get(names[1], weights[names[0]]).float()
    config = AutoConfig.from_pretrained(target)
    config = getattr(config, "text_config", config)
    gain = weights[names[2]].float() + (config.model_type in GEMMA_STYLE_FINAL_NORM_MODEL_TYPES)
    right = total = 0
    rows = load_from_disk(str(data)).with_format("torch")
    for index, row in enumerate(rows):
        stored = FileTransfer(hidden_states).get_cached(index)
        if stored is None:
            continue
        state = stored["hidden_states"][:, -1].float()
        normed = state * torch.rsqrt(state.square().mean(-1, keepdim=True) + config.rms_norm_eps) * gain
        written = row["loss_mask"][1:].bool()
        named = (normed[:-1][written] @ projection.T).argmax(-1)
        right += int((named == row["input_ids"][1:][written]).sum())
        total += int(written.sum())
    return right / total if total else 0.0


def evaluate(
    checkpoint: Path, data: Path, hidden_states: Path, target: str, k: int, answer_tokens: int | None = None
) -> dict[str, object]:
    """Run the head over every sample.

    Args:
        checkpoint: directory of the head with its embedding.
        data: prepared rows.
        hidden_states: their states.
        target: directory of the target.
        k: draft steps.
        answer_tokens: judge only so many tokens of each answer; long answers repeat themselves and are easier.

    Returns:
        `conditional` [k]: share right at each step; `samples`; `tokens`: supervised positions of step 1;
        `coverage`: share of answer tokens in the draft vocabulary.
    """
    accelerator = torch.accelerator.current_accelerator()
    device = accelerator or torch.device("cpu")
    model = _model(checkpoint, target, device)
    dataset = ArrowDataset(
        max_len=4096,
        datapath=str(data),
        transfer=FileTransfer(hidden_states),
        on_missing="raise",
        train_ratio=1.0,
        split="train",
    )
    hidden = model.config.transformer_layer_config.hidden_size
    layers = len(model.config.eagle_aux_hidden_state_layer_ids)
    correct, total = [0] * k, [0] * k
    # The packed form with one sample a batch: no sample sees another, no padding to mask out.
    for index in range(len(dataset)):
        sample = dataset[index]
        if answer_tokens is not None:
            sample["loss_mask"] = sample["loss_mask"] * (sample["loss_mask"].cumsum(0) <= answer_tokens)
        rows = int(sample["input_ids"].shape[0]) - 1
        collate = CollateFn(rows, hidden, num_target_layers=layers, dtype=torch.bfloat16, preprocess=shift_batch)
        batch = {key: value.to(device) for key, value in collate([sample]).items() if isinstance(value, torch.Tensor)}
        batch.pop("verifier_last_hidden_states")  # without it the model drafts and computes no loss
        with torch.no_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
            drafts = model(**batch, ttt_steps=k)
        proposed = [_target_ids(step[0], model.d2t).tolist() for step in drafts]
        ids, answer = batch["input_ids"][0].tolist(), batch["loss_mask"][0].bool().tolist()
        for step, (right, tried) in enumerate(accepted(proposed, ids, answer)):
            correct[step] += right
            total[step] += tried
    return {
        "conditional": [c / t if t else 0.0 for c, t in zip(correct, total, strict=True)],
        "samples": len(dataset),
        "tokens": total[0],
        "coverage": 1.0 if model.t2d is None else _coverage(data, model.t2d.cpu()),
    }


def _target_ids(draft_ids: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
    """Ids of the target's vocabulary; `d2t` holds offsets, not ids."""
    return draft_ids if offsets is None else draft_ids + offsets[draft_ids]


def main(argv: list[str]) -> None:
    """Command line of the above: without a checkpoint only the hidden states themselves are judged."""
    parser = argparse.ArgumentParser(prog="evaluate")
    for name in ("data", "hidden-states", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--answer-tokens", type=int)
    options = parser.parse_args(argv)
    result: dict[str, object]
    if options.checkpoint is None:
        result = {"agreement": agreement(options.data, options.hidden_states, options.target)}
        options.out.write_text(json.dumps(result) + "\n", encoding="utf-8")
        return
    result = evaluate(
        options.checkpoint, options.data, options.hidden_states, options.target, options.k, options.answer_tokens
    )
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
