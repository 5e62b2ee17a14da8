"""What training a head costs, before anything is started. Pure arithmetic; `render_plan` shows the formulas.

With N samples of L tokens, T = N L tokens in all, of which the target writes a share a:

- regenerate: a T / (decode throughput of the node).
- extract:    2 P T / (GPUs x peak x prefill share) + N x 18 ms, P active parameters; the usual two FLOPs a parameter
              and token, and what each request and file cost whatever the target.
- fit:        (6 P_layer + 4 P_vocab) T k e / (GPUs x peak x training share), k unrolled steps, e epochs;
              the vocabulary projection is frozen (speculators 0.9.0), so it has no weight gradient, and the
              target's own projection runs once. At least 70 ms for every 8192 tokens: launches and data loading.
- evaluate:   the held-out prompts at the node's throughput, plus engine starts.
- disk:       T x (auxiliary layers + 1) x hidden size x 2 bytes if extracted offline.

Shares of peak were set so that the one public run with a bill comes out: Kimi-K2.5, 600k samples, 6B tokens,
about 1,500 H200-hours. Within a factor of two is what such a formula can promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.train.extract import hidden_state_bytes

Mode = Literal["offline", "online"]
# Wall hours under which a node's owner waits rather than rents.
_PATIENCE_H = 24.0
# Longest rental that still counts as a plan.
_DISK_SHARE = 0.8
_SECONDS_TO_START = 60.0
_LOAD_GB_S = 2.0  # reading weights from one local disk
# Measured on one H200 with a target too small to matter: 3000 rows of 300 tokens in 55 s; 4800 training steps of 8192
# tokens in 393 s, compilation, data loading, validation and checkpoints included.
_SECONDS_PER_ROW = 0.018
_SECONDS_PER_STEP = 0.07
_TOKENS_PER_STEP = 8192
_TEXT_BYTES_PER_TOKEN = 12  # ids, mask and text of a response row


@dataclass(frozen=True, slots=True)
class TargetShape:
    """The target, as far as cost depends on it.

    Attributes:
        name: repository id.
        layers: decoder layers.
        hidden_size: width.
        vocab_size: tokens.
        active_params: parameters that one token passes.
        weight_gb: bytes on disk and in memory, in 1e9 bytes.
    """

    name: str
    layers: int
    hidden_size: int
    vocab_size: int
    active_params: float
    weight_gb: float


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The head to train.

    Attributes:
        aux_layers: layers that it reads beside the last.
        hidden_size: width, the target's.
        intermediate_size: width of its feed-forward part.
        draft_vocab_size: tokens that it can propose.
    """

    aux_layers: int
    hidden_size: int
    intermediate_size: int
    draft_vocab_size: int

    @property
    def layer_params(self) -> float:
        """Trained parameters: input projection, attention over twice the width, feed-forward."""
        h = self.hidden_size
        return self.aux_layers * h * h + 2 * h * 3 * h + h * h + 3 * h * self.intermediate_size

    @property
    def vocab_params(self) -> float:
        """Frozen projection onto the draft vocabulary."""
        return float(self.hidden_size * self.draft_vocab_size)


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A machine.

    Attributes:
        name: its key in the catalogue.
        title: for people.
        gpus: number of GPUs; 1 for a machine without any.
        bf16_tflops: dense peak of one GPU, or of the CPU.
        memory_gb: of one GPU.
        disk_gb: free disk.
        prefill_mfu: share of peak that prefill reaches.
        train_mfu: share of peak that training reaches.
        answer_tok_s: decode throughput of this target on the whole node.
        source: where the figures come from.
        answer_source: where the throughput comes from.
    """

    name: str
    title: str
    gpus: int
    bf16_tflops: float
    memory_gb: float
    disk_gb: float
    prefill_mfu: float
    train_mfu: float
    answer_tok_s: float
    source: str
    answer_source: str


@dataclass(frozen=True, slots=True)
class StageCost:
    """Cost of one stage.

    Attributes:
        gpu_hours: wall hours x GPUs.
        wall_hours: on the whole node.
        disk_gb: kept at the end of the stage, in 1e9 bytes.
        memory_gb: of one GPU, while it runs.
        start_s: seconds of engine starts in it.
        formula: with the numbers put in.
    """

    gpu_hours: float
    wall_hours: float
    disk_gb: float
    memory_gb: float
    start_s: float
    formula: str


@dataclass(frozen=True, slots=True)
class Workload:
    """How much is trained.

    Attributes:
        samples: conversations.
        seq_len: tokens of one, prompt and answer.
        answer_share: share of tokens that the target writes.
        epochs: passes over the data.
        k: unrolled steps.
        check_samples: held-out prompts.
    """

    samples: int
    seq_len: int
    answer_share: float = 0.7
    epochs: float = 1.0
    k: int = 3
    check_samples: int = 160

    @property
    def tokens(self) -> float:
        """Tokens of one pass."""
        return float(self.samples) * self.seq_len


@dataclass(frozen=True, slots=True)
class Plan:
    """Cost of a run on one node, offline or online.

    Attributes:
        node: the machine.
        mode: whether hidden states are kept on disk or made anew in every epoch.
        stages: stage to cost.
        fits: whether disk and memory suffice.
        reason: why this mode, or why it does not fit.
    """

    node: PlanNode
    mode: Mode
    stages: dict[str, StageCost]
    fits: bool
    reason: str

    @property
    def gpu_hours(self) -> float:
        """Over all stages."""
        return sum(stage.gpu_hours for stage in self.stages.values())

    @property
    def wall_hours(self) -> float:
        """Over all stages."""
        return sum(stage.wall_hours for stage in self.stages.values())


def plan_on(node: PlanNode, target: TargetShape, head: HeadShape, work: Workload) -> Plan:
    """The cheaper way that fits the node's disk: offline if the hidden states find room, else online."""
    states_gb = hidden_state_bytes(int(work.tokens), head.aux_layers + 1, target.hidden_size) / 1e9
    room = node.disk_gb * _DISK_SHARE
    mode: Mode = "offline" if states_gb <= room else "online"
    stages = {
        "regenerate": _regenerate(node, target, work),
        "extract": _extract(node, target, work, states_gb, mode),
        "fit": _fit(node, target, head, work),
        "evaluate": _evaluate(node, target, work),
    }
    text_gb = stages["regenerate"].disk_gb
    needs_gb = target.weight_gb * 1.1
    if text_gb > room:
        return Plan(node, mode, stages, fits=False, reason=f"even the answers ({text_gb:.0f} GB) exceed its disk")
    if needs_gb > node.memory_gb * node.gpus:
        have = node.memory_gb * node.gpus
        return Plan(
            node, mode, stages, fits=False, reason=f"the target needs {needs_gb:.0f} GB of {have:.0f} GB memory"
        )
    if mode == "offline":
        reason = (
            f"hidden states take {_gb(states_gb)}, {_gb(node.disk_gb)} of disk hold them; extracted once for all epochs"
        )
    else:
        reason = (
            f"hidden states would take {_gb(states_gb)}, the disk has {_gb(node.disk_gb)}: "
            "extract online, sample by sample, in every epoch"
        )
    return Plan(node, mode, stages, fits=True, reason=reason)


def _gb(value: float) -> str:
    return f"{value / 1000:.1f} TB" if value >= 1000 else f"{value:.1f} GB"


def _cost(
    node: PlanNode, seconds: float, disk_gb: float, memory_gb: float, formula: str, start_s: float = 0.0
) -> StageCost:
    hours = (seconds + start_s) / 3600
    return StageCost(hours * node.gpus, hours, disk_gb, memory_gb, start_s, formula)


def _start_s(target: TargetShape) -> float:
    """Seconds of one engine start."""
    return _SECONDS_TO_START + target.weight_gb / _LOAD_GB_S


def _peak(node: PlanNode, share: float) -> float:
    return node.gpus * node.bf16_tflops * 1e12 * share


def _regenerate(node: PlanNode, target: TargetShape, work: Workload) -> StageCost:
    answer = work.tokens * work.answer_share
    seconds = answer / node.answer_tok_s
    formula = f"{answer:.3g} answer tokens / {node.answer_tok_s:g} tok/s ({node.answer_source})"
    text_gb = work.tokens * _TEXT_BYTES_PER_TOKEN / 1e9
    return _cost(node, seconds, text_gb, target.weight_gb / node.gpus, formula, start_s=_start_s(target))


def _extract(node: PlanNode, target: TargetShape, work: Workload, states_gb: float, mode: Mode) -> StageCost:
    passes = 1.0 if mode == "offline" else work.epochs
    flops = 2 * target.active_params * work.tokens * passes
    formula = (
        f"2 x {target.active_params:.3g} x {work.tokens:.3g} tokens x {passes:g} passes / "
        f"({node.gpus} x {node.bf16_tflops:g} TFLOPS x {node.prefill_mfu:g}) + {work.samples} x {_SECONDS_PER_ROW} s"
    )
    seconds = flops / _peak(node, node.prefill_mfu) + work.samples * _SECONDS_PER_ROW * passes
    kept = states_gb if mode == "offline" else 0.0
    return _cost(node, seconds, kept, target.weight_gb / node.gpus, formula, start_s=_start_s(target))


def _fit(node: PlanNode, target: TargetShape, head: HeadShape, work: Workload) -> StageCost:
    per_token = (6 * head.layer_params + 4 * head.vocab_params) * work.k + 2 * head.vocab_params
    flops = per_token * work.tokens * work.epochs
    formula = (
        f"((6 x {head.layer_params:.3g} + 4 x {head.vocab_params:.3g}) x {work.k} + 2 x {head.vocab_params:.3g}) x "
        f"{work.tokens:.3g} tokens x {work.epochs:g} epochs / "
        f"({node.gpus} x {node.bf16_tflops:g} TFLOPS x {node.train_mfu:g})"
    )
    trained = head.layer_params + head.vocab_params + target.vocab_size * head.hidden_size
    # FP32 weights, gradients and two moments of what is trained, plus the checkpoints of a run.
    memory_gb = trained * 16 / 1e9 + 8
    least = work.tokens * work.epochs / _TOKENS_PER_STEP * _SECONDS_PER_STEP
    seconds = max(flops / _peak(node, node.train_mfu), least)
    return _cost(node, seconds, trained * 6 / 1e9, memory_gb, formula)


def _evaluate(node: PlanNode, target: TargetShape, work: Workload) -> StageCost:
    answer = work.check_samples * work.seq_len * work.answer_share
    formula = f"{answer:.3g} tokens / {node.answer_tok_s:g} tok/s + two engine starts"
    return _cost(
        node, answer / node.answer_tok_s, 0.0, target.weight_gb / node.gpus, formula, start_s=2 * _start_s(target)
    )


def verdict(here: Plan, others: list[Plan]) -> str:
    """One sentence for the owner of the node."""
    if here.fits and here.wall_hours <= _PATIENCE_H:
        return f"fits here ({here.node.title}) in {_span(here.wall_hours)}, {here.mode}"
    start = (
        f"would take {_span(here.wall_hours)} here ({here.node.title})"
        if here.fits
        else f"does not fit here ({here.node.title}): {here.reason}"
    )
    able = sorted((p for p in others if p.fits), key=lambda p: p.wall_hours)
    if not able or (here.fits and able[0].wall_hours >= here.wall_hours):
        return f"{start}; no machine of the catalogue is faster"
    best = able[0]
    return (
        f"{start}; on {best.node.title} it takes {_span(best.wall_hours)} ({best.gpu_hours:.0f} GPU-hours, {best.mode})"
    )


def _span(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} minutes"
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.1f} days"
