"""A ResNet for CIFAR trained in torch, run in an environment of its own: `python resnet_reference.py FOLDER`.

Reads FOLDER/weights.npz (torchvision's names), optimizer.json, image.npy [steps, B, 3, H, W] and label.npy, test_image.npy and
test_label.npy; writes FOLDER/correct.npy, the number of test images that come out right. Imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two convolutions; where shapes change, the shortcut takes every second pixel and fills up with zeros."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = outputs // inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        if self.stride == 2:
            extra = x.shape[1] // 2
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra, extra))
        return functional.relu(x + y)


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        for number, (inputs, outputs) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
            blocks = nn.Sequential(Block(inputs, outputs), Block(outputs, outputs), Block(outputs, outputs))
            setattr(self, f"layer{number}", blocks)
        self.fc = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def main(folder: Path) -> None:
    torch.set_num_threads(2)
    how = json.loads((folder / "optimizer.json").read_text())
    model = ResNet20()
    with np.load(folder / "weights.npz") as file:
        left = model.load_state_dict({name: torch.from_numpy(file[name]) for name in file.files}, strict=False)
    assert not left.unexpected_keys and all(name.endswith("num_batches_tracked") for name in left.missing_keys), left
    kernels = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": kernels, "weight_decay": how["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=how["momentum"], nesterov=how["nesterov"])
    images, labels = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("image", "label"))
    for rate, image, label in zip(how["learning_rates"], images, labels, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        logits = model(torch.from_numpy(np.array(image)))
        functional.cross_entropy(logits, torch.from_numpy(np.array(label)).long()).backward()
        optimizer.step()
    model.eval()
    test, wanted = np.load(folder / "test_image.npy"), np.load(folder / "test_label.npy")
    with torch.no_grad():
        found = torch.cat([model(torch.from_numpy(part)).argmax(1) for part in np.array_split(test, 10)]).numpy()
    np.save(folder / "correct.npy", np.sum(found == wanted))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
