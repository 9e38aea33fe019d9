"""The arithmetic of training large language models, as formulas with four faces.

``import onegpu`` loads neither ipywidgets nor Matplotlib nor JAX; they load when a widget, a
figure or an evidence function is asked for.
"""

from .catalog import GPUS, MODELS, NETWORKS, RECIPES, RUNS, Transformer
from .facts import FACTS
from .formula import Case, Formula, Quantity
from .labels import set_language

__all__ = ["FACTS", "GPUS", "MODELS", "Calculator", "Case", "Exercise", "Formula", "NETWORKS", "Quantity", "RECIPES", "RUNS", "Transformer", "set_language"]
__version__ = "0.1.0"


def __getattr__(name):
    if name == "Calculator":
        from .calculator import Calculator
        return Calculator
    if name == "Exercise":
        from .exercise import Exercise
        return Exercise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
