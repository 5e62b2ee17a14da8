"""Run by the training interpreter: is each fault of the patch ledger still there? Prints name to yes or no as JSON."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import typer
from speculators.cli.prepare_data import prepare_data
from speculators.cli.regenerate_responses import build_detokenizer
from speculators.convert.eagle.eagle3_converter import Eagle3Converter
from speculators.losses.utils import _fused_kernel
from speculators.train import trainer
from torch.nn.attention.flex_attention import flex_attention


def raises(
    kind: type[BaseException] | tuple[type[BaseException], ...], call: Any, *arguments: Any, **keywords: Any
) -> bool:
    """Whether a call raises."""
    try:
        call(*arguments, **keywords)
    except kind:
        return True
    return False


def target_with_nested_limits(place: Path) -> str:
    """A multimodal configuration: its limit stands in `text_config` only."""
    nested = {"model_type": "llama", "max_position_embeddings": 262144, "vocab_size": 64}
    (place / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": nested}), encoding="utf-8")
    return str(place)


def converted(place: Path) -> Any:
    """A head's configuration after the converter, with ids and limit nested as publishers nest them."""
    nested = {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}
    eagle = {"eagle_config": nested, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4}
    return Eagle3Converter()._build_eagle3_speculator_config(eagle, target_with_nested_limits(place))


class Bare(trainer.Trainer):  # type: ignore[misc]
    """A trainer whose parts do nothing, so that only the control flow is left."""

    def setup_trainer(self) -> None:
        self.current_epoch, self.epochs, self.global_step = 0, 0, 1

    def setup_model(self) -> None: ...
    def setup_optimizer(self) -> None: ...
    def maybe_save_checkpoint(self, *_: Any, **__: Any) -> None: ...
    def maybe_update_best(self, *_: Any) -> None: ...
    def train_epoch(self, *_: Any, **__: Any) -> None:
        self.epochs += 1


def bare(place: Path) -> Bare:
    config = trainer.TrainerConfig(lr=1e-3, num_epochs=3, save_path=str(place), max_steps=1)
    return Bare(SimpleNamespace(), config, [])


def epochs_after_max_steps(place: Path) -> int:
    made = bare(place)
    made.val_loader = None
    made.run_training()
    return int(made.epochs)


def custom_code_tokenizer(place: Path) -> str:
    """A model directory whose tokenizer class lies in the directory itself."""
    (place / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
    (place / "tokenization_own.py").write_text("class Own: ...\n", encoding="utf-8")
    kind = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}}
    (place / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
    return str(place)


def half_prepared(place: Path) -> bool:
    """Whether a directory with half a dataset counts as done."""
    (place / "data-00000-of-00002.arrow").write_bytes(b"half")
    try:
        prepare_data(model="absent", data=["absent.jsonl"], output=str(place), overwrite=False, token_freq_path=None)
    except typer.Exit as done:
        return done.exit_code == 0
    except (OSError, ValueError):
        return False
    return False


def flex_has_no_cpu_backward() -> bool:
    query = torch.randn(1, 1, 8, 16, requires_grad=True)
    return raises(
        (RuntimeError, NotImplementedError),
        lambda: flex_attention(query, query.detach(), query.detach()).sum().backward(),
    )


def main() -> None:
    """Look at every fault."""
    with tempfile.TemporaryDirectory() as scratch:
        places = [Path(scratch) / str(i) for i in range(6)]
        for place in places:
            place.mkdir()
        head = converted(places[0])
        found = {
            "converter drops nested layers": head.eagle_aux_hidden_state_layer_ids is None,
            "converter falls to 4096": head.transformer_layer_config.max_position_embeddings == 4096,
            "trainer falls to cuda": bare(places[1]).device_type == "cuda",
            "step timer needs a device": raises(RuntimeError, trainer._StepTimer(enabled=True).mark, "start"),
            "max_steps does not end the run": epochs_after_max_steps(places[2]) == 3,
            "fused losses need triton": raises(RuntimeError, _fused_kernel, "kl_div"),
            "alias is no tokenizer": raises((OSError, ValueError), build_detokenizer, "smollm2-135m"),
            "custom code is refused": raises(
                (OSError, ValueError), build_detokenizer, custom_code_tokenizer(places[3])
            ),
            "half a dataset counts as done": half_prepared(places[4]),
            "flex has no CPU backward": flex_has_no_cpu_backward(),
        }
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
