"""The weights of a translator as they are in its CPU engine, in 8 bits: for bundles without other weights.

Constants of the engine's graphs are named "FACTOR LAYER... PART" (engine/graphs.py): the layers' rows one below the
other, those of the first layer multiplied by FACTOR; PART is weight, scale or bias.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor

from whilst.core.errors import UserError, naming_extras
from whilst.core.files import checked_manifest
from whilst.model.run_folder import ENGINE_FORMAT, ENGINE_MANIFEST
from whilst.model.transformer import Translator


def read_engine_weights(engine: Path, model: Translator) -> dict[str, Tensor]:
    """All parameters of a model of this shape."""
    checked_manifest(engine / ENGINE_MANIFEST, [ENGINE_FORMAT], set(), "get or make the bundle again")
    found: dict[str, NDArray[Any]] = {}
    for name in ("read", "write"):
        found |= _layers(_constants(engine / f"{name}.int8.onnx"), model)
    tables = load_file(engine / "tables.int8.safetensors")
    for side in ("source", "target"):
        scaled = tables[side].astype(np.float32) * tables[f"{side}.scale"][:, None]
        found[f"{side}_embedding.weight"] = scaled / np.float32(model.settings.width**0.5)
    if missing := sorted(model.state_dict().keys() - found.keys()):
        raise UserError(f"{engine}: has no {missing[0]}; get or make the bundle again")
    return {name: torch.from_numpy(np.array(value)) for name, value in found.items()}


def _constants(graph: Path) -> dict[str, NDArray[Any]]:
    with naming_extras():
        from onnx import load, numpy_helper
    return {constant.name: numpy_helper.to_array(constant) for constant in load(graph).graph.initializer}


def _layers(constants: dict[str, NDArray[Any]], model: Translator) -> dict[str, NDArray[Any]]:
    """The named constants as parameters."""
    found: dict[str, NDArray[Any]] = {}
    for name, value in constants.items():
        words = name.split(" ")
        if len(words) < 3 or words[-1] == "scale":
            continue
        factor, *layers, part = words
        if value.dtype == np.int8:  # (in, sum of out)
            value = value.T.astype(np.float32) * constants[name.removesuffix(part) + "scale"][:, None]
        sizes = [len(model.get_parameter(f"{layer}.{part}")) for layer in layers]
        rows = np.split(value, np.cumsum(sizes)[:-1])
        rows[0] = rows[0] / np.float32(factor)
        found |= {f"{layer}.{part}": row for layer, row in zip(layers, rows, strict=True)}
    return found
