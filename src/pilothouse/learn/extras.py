# SPDX-License-Identifier: Apache-2.0
"""Libraries that only training needs, asked for when they are needed and not before."""

from __future__ import annotations

import importlib
import importlib.util

from pilothouse.errors import MissingExtra

PURPOSES = {
    "polars": "Reading traces needs Polars",
    "xgboost": "Training needs XGBoost",
    "jax": "Training placement needs JAX",
    "optax": "Training placement needs optax",
    "gymnasium": "The placement environment needs Gymnasium",
    "matplotlib": "Plots need matplotlib",
    "scipy": "The exact reference needs SciPy",
    "optuna": "Tuning needs Optuna",
    "ray": "Spreading work over machines needs Ray",
}
EXTRAS = {"ray": "distributed", "matplotlib": "bench", "scipy": "bench"}


def need(*modules: str) -> None:
    """Say which extra is missing, in one line, before anything else happens."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            extra = EXTRAS.get(module, "learn")
            purpose = PURPOSES.get(module, f"This needs {module}")
            raise MissingExtra(f'{purpose}. Install it with: pip install "pilothouse[{extra}]"')
