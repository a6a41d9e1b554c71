"""Read the weights of a translator from its CPU engine, in 8 bits: for bundles without other weights.

Constants of the engine's graphs are named "FACTOR LAYER... PART" (engine/graphs.py); PART is weight, scale or bias.
Such a constant has the rows of these layers end to end, and the rows of the first layer are multiplied by FACTOR.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor

from whilst.core.errors import UserError, name_missing_extra
from whilst.core.files import checked_manifest
from whilst.model.run_folder import ENGINE_FORMAT, ENGINE_MANIFEST
from whilst.model.transformer import Translator


def read_engine_weights(engine: Path, model: Translator) -> dict[str, Tensor]:
    """All parameters by name. `model`: any translator of the same shape."""
    checked_manifest(engine / ENGINE_MANIFEST, [ENGINE_FORMAT], set(), "get or make the bundle again")
    weights: dict[str, NDArray[Any]] = {}
    for name in ("read", "write"):
        weights |= _parameters(_constants(engine / f"{name}.int8.onnx"), model)
    tables = load_file(engine / "tables.int8.safetensors")
    for side in ("source", "target"):
        scaled = tables[side].astype(np.float32) * tables[f"{side}.scale"][:, None]
        weights[f"{side}_embedding.weight"] = scaled / np.float32(model.settings.width**0.5)
    if missing := sorted(model.state_dict().keys() - weights.keys()):
        raise UserError(f"{engine}: has no {missing[0]}; get or make the bundle again")
    return {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}


def _constants(graph: Path) -> dict[str, NDArray[Any]]:
    with name_missing_extra():
        from onnx import load, numpy_helper
    return {constant.name: numpy_helper.to_array(constant) for constant in load(graph).graph.initializer}


def _parameters(constants: dict[str, NDArray[Any]], model: Translator) -> dict[str, NDArray[Any]]:
    """The parameters that the constants with such names contain."""
    parameters: dict[str, NDArray[Any]] = {}
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
        parameters |= {f"{layer}.{part}": row for layer, row in zip(layers, rows, strict=True)}
    return parameters
