"""Quality by expert budget on a small mixture of experts that is trained here, on the CPU, in minutes.

A byte-level transformer is trained on this repository's own documents, once with softmax routing and once with sigmoid
routing and a balancing bias (as in DeepSeek-V3). Then held-out text is read as a server would decode it: a prompt that
no budget touches, then steps of several sequences and, as in verification, several tokens each, routed by the very
functions that the engine plugin uses. It says how a budget's harm falls with B; it does not say how large that is for a
model of other size, training and routing.

    python benchmarks/budget/quality.py --out results.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from outrider.vllm_ext.expert_budget.routing import Routing, chosen_weight, drop, kept_experts, reroute

ROOT = Path(__file__).resolve().parents[2]
WIDTH, LAYERS, HEADS, EXPERTS, TOP_K, EXPERT_WIDTH, LENGTH, PROMPT = 96, 3, 4, 16, 2, 64, 128, 32


@dataclass
class Step:
    """How tokens are grouped into engine steps, and the bound that holds in them."""

    budget: int | None
    mode: str
    tokens_each: int

    def route(self, weights: Tensor, ids: Tensor, logits: Tensor, bias: Tensor | None, routing: Routing) -> tuple:
        """Sequences decode side by side: a step holds `tokens_each` positions of each. [sequences, positions, ...]."""
        if self.budget is None:
            return weights, ids
        weights, ids = weights.clone(), ids.clone()
        for begin in range(PROMPT, ids.shape[1], self.tokens_each):
            here = slice(begin, begin + self.tokens_each)
            w, i, x = (part[:, here].flatten(0, 1) for part in (weights, ids, logits))
            votes = chosen_weight(w, i, torch.tensor(len(i)), EXPERTS)
            keep = kept_experts(votes, torch.tensor(self.budget))
            w, i = reroute(w, i, x, bias, keep, routing) if self.mode == "reroute" else drop(w, i, keep, votes)
            shape = (*ids[:, here].shape,)
            weights[:, here], ids[:, here] = w.view(shape), i.view(shape)
        return weights, ids


class Experts(nn.Module):
    """A routed feed-forward."""

    def __init__(self, scoring: str) -> None:
        super().__init__()
        self.routing = Routing(scoring, renormalize=True)  # type: ignore[arg-type]
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.rise = nn.Parameter(torch.randn(EXPERTS, WIDTH, EXPERT_WIDTH) / WIDTH**0.5)
        self.fall = nn.Parameter(torch.randn(EXPERTS, EXPERT_WIDTH, WIDTH) / EXPERT_WIDTH**0.5 / LAYERS)
        self.register_buffer("bias", torch.zeros(EXPERTS))
        self.balance = torch.zeros(())

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """[sequences, positions, WIDTH] to the same."""
        logits = self.gate(x)
        scores = self.routing.scores(logits)
        ids = torch.topk(scores + self.bias, TOP_K, dim=-1).indices
        weights = scores.gather(-1, ids)
        weights = weights / weights.sum(-1, keepdim=True)
        if self.training:
            load = F.one_hot(ids, EXPERTS).float().mean((0, 1, 2)) * EXPERTS
            if self.routing.scoring == "sigmoid":
                self.bias += 0.003 * (1 - load).sign()
            self.balance = (load * scores.mean((0, 1))).sum() if self.routing.scoring == "softmax" else torch.zeros(())
        bias = self.bias if self.routing.scoring == "sigmoid" else None
        weights, ids = step.route(weights, ids, logits, bias, self.routing)
        flat, ids, weights = x.flatten(0, 1), ids.flatten(0, 1), weights.flatten(0, 1)
        out = torch.zeros_like(flat)
        for expert in range(EXPERTS):
            token, place = (ids == expert).nonzero(as_tuple=True)
            if len(token):
                inner = F.silu(flat[token] @ self.rise[expert]) @ self.fall[expert]
                out = out.index_add(0, token, inner * weights[token, place].unsqueeze(1))
        return out.view_as(x)


class Block(nn.Module):
    """Attention and experts."""

    def __init__(self, scoring: str) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.mix, self.join = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.experts = Experts(scoring)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """[sequences, positions, WIDTH] to the same."""
        q, k, v = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in self.mix(self.before(x)).chunk(3, dim=-1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.join(seen.transpose(1, 2).flatten(2))
        return x + self.experts(self.between(x), step)


class Model(nn.Module):
    """Bytes in, logits over bytes out."""

    def __init__(self, scoring: str) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        for table in (self.embed, self.place):
            nn.init.normal_(table.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(scoring) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)

    def forward(self, text: Tensor, step: Step) -> Tensor:
        """[sequences, positions] of bytes to logits."""
        x = self.embed(text) + self.place.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x, step)
        return self.norm(x) @ self.embed.weight.T


def texts() -> tuple[Tensor, Tensor]:
    """Training and held-out bytes: every eighth file is held out."""
    files = sorted(
        [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("src/outrider/load/workloads/sets/*.yaml")]
    )
    parts: list[list[bytes]] = [[], []]
    for number, file in enumerate(files):
        parts[number % 8 == 0].append(file.read_bytes())
    train, held = (torch.frombuffer(bytearray(b"\n".join(part)), dtype=torch.uint8).long() for part in parts)
    return train, held


def train(scoring: str, data: Tensor, steps: int, batch: int) -> Model:
    """One model; a line of progress every twentieth of the way."""
    torch.manual_seed(0)
    model = Model(scoring)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1)
    free, began = Step(None, "reroute", 1), time.monotonic()
    for number in range(1, steps + 1):
        at = torch.randint(0, len(data) - LENGTH - 1, (batch,))
        rows = torch.stack([data[i : i + LENGTH + 1] for i in at])
        logits = model(rows[:, :-1], free)
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        balance = sum(block.experts.balance for block in model.blocks)
        optimizer.zero_grad()
        (loss + 0.01 * balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if number % max(steps // 20, 1) == 0:
            spent = time.monotonic() - began
            print(
                f"{scoring} {number}/{steps} loss {loss.item():.3f}, {spent / number * (steps - number):.0f} s left",
                flush=True,
            )
    return model.eval()


@torch.no_grad()
def read(model: Model, rows: Tensor, step: Step) -> tuple[float, Tensor]:
    """Cross-entropy in nats a byte after the prompt, and the byte that the model would have written at each place."""
    logits = model(rows[:, :-1], step)[:, PROMPT:]
    return F.cross_entropy(logits.flatten(0, 1), rows[:, PROMPT + 1 :].flatten()).item(), logits.argmax(-1)


def measure(scoring: str, model: Model, held: Tensor, groups: int) -> list[dict[str, object]]:
    """Perplexity and agreement by step size, mode and B, over `groups` batches of held-out windows."""
    found = []
    for sequences, tokens_each in ((1, 4), (4, 4), (16, 4)):
        generator = torch.Generator().manual_seed(1)
        count = groups * max(16 // sequences, 1)
        at = torch.randint(0, len(held) - LENGTH - 1, (count * sequences,), generator=generator)
        rows = torch.stack([held[i : i + LENGTH + 1] for i in at]).view(count, sequences, -1)
        free = [read(model, one, Step(None, "reroute", tokens_each)) for one in rows]
        plain = sum(loss for loss, _ in free) / count
        tokens = sequences * tokens_each
        union = EXPERTS * (1 - (1 - TOP_K / EXPERTS) ** tokens)
        for budget in (16, 12, 8, 6, 4, 3, 2):
            for mode in ("reroute", "drop"):
                bounded = [read(model, one, Step(budget, mode, tokens_each)) for one in rows]
                loss = sum(loss for loss, _ in bounded) / count
                same = sum((a[1] == b[1]).float().mean().item() for a, b in zip(free, bounded, strict=True)) / count
                found.append({
                    "routing": scoring, "sequences": sequences, "tokens": tokens, "expected_union": round(union, 1),
                    "mode": mode, "experts": budget, "perplexity": math.exp(loss), "perplexity_free": math.exp(plain),
                    "agreement": same,
                })  # fmt: skip
                print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    """Train both, measure both, write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16, help="sequences of 128 bytes")
    parser.add_argument("--groups", type=int, default=6, help="of 16 held-out windows, for each figure")
    parser.add_argument("--routing", choices=["softmax", "sigmoid"], action="append")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    data, held = texts()
    print(f"{len(data)} bytes to train on, {len(held)} held out", flush=True)
    found = []
    for scoring in given.routing or ["softmax", "sigmoid"]:
        model = train(scoring, data, given.steps, given.batch)
        found += measure(scoring, model, held, given.groups)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
