"""What runs in the training interpreter: `python -m outrider.train.worker COMMAND ...`.

`speculators ...` passes through to speculators' own command line, with the trainer of `trainer.py` in place of its
own; `probe-tokenizer` and `evaluate` are small programs that need its packages. Everything prints to the log of the
stage that started it; results are files.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

EXIT_NOT_FINITE = 41
EXIT_OTHER_TOKENIZER = 42


def _trust_remote_code() -> None:
    """Let transformers' Auto classes run the target's own code, for targets whose stack pins and trusts it.

    speculators 0.9.0 passes that permission on in some places only (`patches/ledger.yaml`).
    """
    import transformers  # noqa: PLC0415

    for name in ("AutoConfig", "AutoTokenizer", "AutoProcessor"):
        auto = getattr(transformers, name)
        original = auto.from_pretrained

        def trusting(*arguments: Any, _original: Any = original, **keywords: Any) -> Any:
            return _original(*arguments, **{**keywords, "trust_remote_code": True})

        auto.from_pretrained = trusting


def _speculators(argv: list[str]) -> None:
    if argv and argv[0] == "train":
        _train(argv[1:])
        return
    from speculators.cli import app  # noqa: PLC0415

    sys.argv = ["speculators", *argv]
    app()


def _train(argv: list[str]) -> None:
    """`speculators train`; `OUTRIDER_FIT_BUDGET_S` bounds it, `OUTRIDER_FIT_METRICS` receives JSON lines."""
    from speculators.train import cli  # noqa: PLC0415
    from speculators.train.config import TrainConfig  # noqa: PLC0415

    from outrider.train.trainer import BudgetSpent, HeadTrainer, NonFiniteLossError  # noqa: PLC0415

    if budget := os.environ.get("OUTRIDER_FIT_BUDGET_S"):
        HeadTrainer.budget_s = float(budget)
    if metrics := os.environ.get("OUTRIDER_FIT_METRICS"):
        HeadTrainer.metrics_file = Path(metrics)
    cli.Trainer = HeadTrainer
    config = TrainConfig.resolve(argv)
    try:
        cli.main(config)
    except BudgetSpent:
        print("time budget spent: the last epoch is saved")
    except NonFiniteLossError as error:
        print(f"stopped: {error}")
        sys.exit(EXIT_NOT_FINITE)


def _probe_tokenizer(argv: list[str]) -> None:
    """Compare the served target's tokens of a conversation with those of the tokenizer in the model directory."""
    from transformers import AutoTokenizer  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="probe-tokenizer")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--trust-remote-code", action="store_true")
    options = parser.parse_args(argv)
    messages = [{"role": "user", "content": "Tokenizer probe: naïve café, 12.5 % of £3, 日本, def f(x): return x**2"}]
    tokenizer = AutoTokenizer.from_pretrained(options.model, trust_remote_code=options.trust_remote_code)
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    local = list(encoded["input_ids"])
    body = json.dumps({"model": options.model, "messages": messages, "add_generation_prompt": True}).encode()
    request = urllib.request.Request(  # noqa: S310 - http to the engine that this run serves
        options.endpoint + "/tokenize", data=body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        served = json.load(response)["tokens"]
    if served != local:
        print(f"served tokens {served[:12]}... ({len(served)}), tokenizer's {local[:12]}... ({len(local)})")
        sys.exit(EXIT_OTHER_TOKENIZER)


def _no_frequencies(argv: list[str]) -> None:
    """Write an empty token count: the draft vocabulary then is the first ids, which a dry run may have."""
    import torch  # noqa: PLC0415

    torch.save({}, argv[1])


def _evaluate(argv: list[str]) -> None:
    # Every sample has its own length, and compiling for each costs more than it gives.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    from outrider.train.evaluate import main  # noqa: PLC0415

    main(argv)


_COMMANDS: dict[str, Any] = {
    "speculators": _speculators,
    "probe-tokenizer": _probe_tokenizer,
    "evaluate": _evaluate,
    "no-frequencies": _no_frequencies,
}


def main() -> None:
    """Dispatch."""
    command, *rest = sys.argv[1:]
    if os.environ.get("OUTRIDER_TRUST_REMOTE_CODE") == "1":
        _trust_remote_code()
    _COMMANDS[command](rest)


if __name__ == "__main__":
    main()
