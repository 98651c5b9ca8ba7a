"""The other side of `tests.benchmarks.text_vision`: torch, transformers and timm, run in an environment of their own.

`python text_vision_torch.py CASE FOLDER THREADS` writes FOLDER/model.safetensors and FOLDER/inputs.npz, says so, then does the
case once for each line that it reads and answers with one line of JSON. Imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

Run = Callable[
    [], dict[str, Callable[[], Any]]
]  # does the case; what it found is turned into plain numbers after the clock has stopped


def without_torchvision_operators() -> None:
    """The torchvision that can be installed beside this torch lacks its compiled operators, and fails when it registers them."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_kept_alive"] = library


def saved(model: torch.nn.Module, folder: Path, inputs: dict[str, torch.Tensor]) -> None:
    # Tied parameters are one tensor with several names; a file holds it once.
    seen: set[int] = set()
    arrays = {}
    for name, value in model.state_dict().items():
        if value.data_ptr() not in seen:
            arrays[name] = value.contiguous()
        seen.add(value.data_ptr())
    save_file(arrays, folder / "model.safetensors")
    np.savez(folder / "inputs.npz", **{name: value.numpy() for name, value in inputs.items()})


def trained(model: torch.nn.Module, loss_of: Callable[[], torch.Tensor]) -> Run:
    """Forward and backward."""

    def run() -> dict[str, Any]:
        model.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        return {"loss": lambda: float(loss.detach()), "gradient": lambda: gradient(model)}

    return run


def gradient(model: torch.nn.Module) -> float:
    """The norm of the whole gradient."""
    return sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None) ** 0.5


def bert_base(folder: Path) -> Run:
    import transformers

    model = transformers.BertForMaskedLM(
        transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )
    inputs = {"ids": torch.randint(1000, 30000, (8, 128)), "words": torch.randint(1000, 30000, (8, 128))}
    (folder / "config.json").write_text(model.config.to_json_string())
    saved(model, folder, inputs)
    model.train()
    return trained(model, lambda: model(input_ids=inputs["ids"], labels=inputs["words"]).loss)


def t5_model(folder: Path) -> Any:
    import transformers

    config = transformers.T5Config(dropout_rate=0.0, decoder_start_token_id=0)  # the sizes of t5-small
    model = transformers.T5ForConditionalGeneration(config)
    (folder / "config.json").write_text(model.config.to_json_string())
    return model


def t5_small(folder: Path) -> Run:
    model = t5_model(folder)
    inputs = {"source": torch.randint(2, 32000, (8, 128)), "target": torch.randint(2, 32000, (8, 128))}
    saved(model, folder, inputs)
    model.train()
    return trained(model, lambda: model(input_ids=inputs["source"], labels=inputs["target"]).loss)


def generation(folder: Path, beams: int) -> Run:
    model = t5_model(folder).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            # As made, every text would be one token again and again.
            value.mul_(4.0 if "DenseReluDense" in name or "Attention.v" in name else 1.0)
    inputs = {"source": torch.randint(2, 32000, (8, 64))}
    saved(model, folder, inputs)

    def run() -> dict[str, Any]:
        with torch.no_grad():
            ids = model.generate(
                input_ids=inputs["source"],
                attention_mask=torch.ones_like(inputs["source"]),
                max_new_tokens=64,
                num_beams=beams,
                do_sample=False,
            )
        return {"ids": ids[:, 1:].tolist}

    return run


def resnet50(folder: Path) -> Run:
    import timm

    model = timm.create_model("resnet50", num_classes=1000, zero_init_last=False)
    inputs = {"image": torch.randn(8, 3, 224, 224), "label": torch.randint(0, 1000, (8,))}
    saved(model, folder, inputs)
    model.train()
    return trained(model, lambda: torch.nn.functional.cross_entropy(model(inputs["image"]), inputs["label"]))


CASES: dict[str, Callable[[Path], Run]] = {
    "bert_base": bert_base,
    "t5_small": t5_small,
    "resnet50": resnet50,
    "greedy": lambda folder: generation(folder, 1),
    "beam4": lambda folder: generation(folder, 4),
}


def main(case: str, folder: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    without_torchvision_operators()
    run = CASES[case](folder)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        found = run()
        answer: dict[str, Any] = {"seconds": time.perf_counter() - begin}
        print(json.dumps(answer | {name: plain() for name, plain in found.items()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
