"""From the name of a data set in the configuration to the data set, open for reading."""

from __future__ import annotations

from pathlib import Path

from zoo.data import cifar10, image_folder, mnist
from zoo.data.arrays import open_arrays
from zoo.data.digits import open_digits
from zoo.data.download import arrived, fetch
from zoo.data.images import DataConfig, ImageDataset
from zoo.errors import UserError


def open_dataset(config: DataConfig, data_dir: Path, num_classes: int, rehearsal: bool) -> ImageDataset:
    """Opens the data set that the configuration names.

    Args:
        config: names it.
        data_dir: where it is, or is put: for real training a missing CIFAR-10 is fetched from its official source.
        num_classes: of the model.
        rehearsal: nothing is fetched; where the data set is missing, scikit-learn's digits take its place.

    Raises:
        UserError: it is missing and cannot be fetched, or is damaged, or has more classes than the model.
    """
    dataset = _opened(config, data_dir, num_classes, rehearsal)
    if len(dataset.classes) > num_classes:
        raise UserError(
            f"recipe.model.num_classes={num_classes}, but {dataset.name} has {len(dataset.classes)} classes; "
            f"set recipe.model.num_classes={len(dataset.classes)}"
        )
    if config.name == "image_folder" and dataset.name != "digits" and len(dataset.classes) < num_classes:
        raise UserError(
            f"recipe.model.num_classes={num_classes}, and {dataset.name} has {len(dataset.classes)} classes; "
            f"set recipe.model.num_classes={len(dataset.classes)}"
        )
    return dataset


def _opened(config: DataConfig, data_dir: Path, num_classes: int, rehearsal: bool) -> ImageDataset:
    size = f"{config.image_size}x{config.image_size} pixels"
    if config.name == "digits":
        return open_digits(f"data: scikit-learn's handwritten digits, enlarged to {size}")
    stand_in = f"so this rehearsal runs on scikit-learn's handwritten digits, enlarged to {size}"
    if config.name == "image_folder":
        if rehearsal and not image_folder.exists(data_dir):
            return open_digits(f"data: no images in {data_dir}/train, {stand_in}", num_classes)
        return image_folder.open_image_folder(data_dir)
    if config.name == "arrays":
        return open_arrays(data_dir)
    if config.name == "mnist":
        return _mnist(data_dir, num_classes, stand_in if rehearsal else None)
    command = f"python -m zoo.data.download cifar10 --data-dir {data_dir}"
    files = cifar10.find(data_dir)
    if files is None and rehearsal and not arrived(cifar10.NAME, data_dir):
        return open_digits(f"data: no CIFAR-10 in {data_dir}, {stand_in}; to get CIFAR-10: {command}", num_classes)
    if files is None:
        try:
            files = cifar10.find(fetch(cifar10.NAME, data_dir))
        except UserError as error:
            raise UserError(
                f"no CIFAR-10 in data_dir={data_dir}, and {error}; or, where there is a network, run: {command}"
            ) from None
    assert files is not None
    return cifar10.open_cifar10(files)


def _mnist(data_dir: Path, num_classes: int, stand_in: str | None) -> ImageDataset:
    files = mnist.find(data_dir)
    if files is not None:
        return mnist.open_mnist(files)
    if stand_in is not None:
        return open_digits(f"data: no MNIST in {data_dir}, {stand_in}; {mnist.WANTED}", num_classes)
    raise UserError(f"no MNIST in data_dir={data_dir}; {mnist.WANTED}")
