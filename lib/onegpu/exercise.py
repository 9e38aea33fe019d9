"""Exercises with other numbers: a question and its worked answer, made of the book's formulas.

The words are templates in the labels, ``exercise.<name>.ask`` and ``.answer``. What stands in braces
is an input or any value that the formulas compute. Seed 0 is the printed variant; any other seed
draws the inputs anew, in Python and in the page alike.
"""

import html
import json
import re

import traitlets

from . import labels, units
from .calculator import CATALOGS, Live, library, own, row
from .formula import taken

#: What a reader may give as a seed; the page reads at most as many digits.
SEEDS = range(10**9)
#: Begins the name of an input or a value of the second question, such as ``{then.pipeline_bubble}``.
THEN = "then."
PLACE = re.compile(r"\{([\w.]+)(?::(\w+))?\}")


def uniform(text):
    """Numbers from 0 to below 1 for a text: mulberry32, started with the text's FNV-1a hash, as in ``calculator.js``."""
    state = 0x811C9DC5
    for byte in text.encode():
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    while True:
        state = state + 0x6D2B79F5 & 0xFFFFFFFF
        x = (state ^ state >> 15) * (state | 1) & 0xFFFFFFFF
        x ^= x + ((x ^ x >> 7) * (x | 61) & 0xFFFFFFFF) & 0xFFFFFFFF
        yield (x ^ x >> 14) / 2**32


def exact(x):
    """A number with all its digits, in groups of three from five digits on."""
    text = f"{x:.15g}"
    return f"{int(x):,}" if text.isdigit() and len(text) > 4 else text


#: How else than as people read it a value can be shown: ``{gpus:exact}``, and ``{memory:short}`` without the GiB or the unit after the number.
FORMATS = {"exact": lambda q, x: exact(x), "short": lambda q, x: q.human(x).partition(" (")[0].removesuffix(f" {units.shown(q.unit)}")}


class Exercise(Live):
    """A question and its worked answer, for the printed inputs and for as many others as one likes.

    Parameters
    ----------
    name : str
        Key of its words under ``exercise``: ``ask``, ``answer``, and for a value that is told in words
        a table, e.g. ``fits = {yes = "…", no = "…"}``
    *formulas : Formula
        What is computed
    number : str
        Its number in the chapter
    then : dict
        Inputs that change in a second question; its values are ``{then.<name>}`` in the words
    **inputs
        The values to draw from, in base units, or names of a catalogue's rows (``model``, ``gpu``, …);
        the first is printed, a single one stays

    Attributes
    ----------
    seed : int
        Which variant is shown, 0 for the printed one; can be set, linked and observed

    Raises
    ------
    ValueError
        If an input is unknown or refused, or the words name what is neither an input nor computed.

    Examples
    --------
    >>> from onegpu.memory import training_state
    >>> exercise = Exercise("recipe", training_state, params=(13e9, 7e9), grad_bytes=(4, 2))
    >>> exercise.draw(3)
    {'params': 7000000000.0, 'grad_bytes': 2}
    """

    seed = traitlets.Int(0).tag(sync=True)

    def __init__(self, name, *formulas, number="", then=None, **inputs):
        self.name, self.number, self.roots = name, number, formulas
        self.draws = {n: v if isinstance(v, tuple) else (v,) for n, v in (inputs | {THEN + n: v for n, v in (then or {}).items()}).items()}
        self.formulas = {f.name: f for root in formulas for f in root.graph()}
        self.inputs = {n: q for f in self.formulas.values() for n, q in f.inputs(self.formulas).items()}
        self.sources = {n: s for f in reversed(self.formulas.values()) for n, s in f.sources.items()}
        self.pickers = [o for o in CATALOGS if o in inputs]
        self._check_draws()
        self.words = labels.lookup(f"exercise.{name}") or {}
        spec = {"exercise": name, "number": number, "draw": self.draws, "pickers": self.pickers, "formulas": list(self.formulas), "rules": list({r: 0 for f in self.formulas.values() for r in f.all_rules()}),
                "inputs": {n: {"source": self._source(n), "start": q.default} for n, q in self.inputs.items()}, "words": self.words}
        self.page_spec = spec
        self.ask(), self.answer()  # refuses now what it would refuse later
        attributes = {o: {s.partition(".")[2] for n in self.inputs if (s := self._source(n)) and s.startswith(o + ".")} for o in self.pickers}
        super().__init__(spec=spec | {"library": library(list(self.formulas.values()), attributes)})

    def _source(self, name):
        """Where an input comes from, if it comes from a row of a catalogue."""
        source = self.sources.get(name, "")
        return source if name not in self.draws and source.partition(".")[0] in self.pickers else None

    def _check_draws(self):
        """Raise ``ValueError`` unless each value to draw is one of an input of the formulas."""
        allowed = [*CATALOGS, *self.inputs]
        for name, values in self.draws.items():
            name = name.removeprefix(THEN)
            if name not in allowed:
                raise self._wrong(name, values[0], allowed)
            for value in values:
                if name not in CATALOGS:
                    self.inputs[name].check(value)
                elif value not in CATALOGS[name]:
                    raise self._wrong(name, value, CATALOGS[name])

    @staticmethod
    def _wrong(name, value, allowed):
        return ValueError(labels.text("error.must_be", name=name, value=value, allowed=labels.text("allowed.one_of", choices=", ".join(allowed))))

    @traitlets.validate("seed")
    def _legal(self, proposal):
        return self._seed(proposal["value"])

    @staticmethod
    def _seed(seed):
        if isinstance(seed, bool) or not isinstance(seed, int) or seed not in SEEDS:
            bounds = labels.text("allowed.and").join([labels.text("allowed.at_least", bound=0), labels.text("allowed.at_most", bound=SEEDS[-1])])
            raise ValueError(labels.text("error.must_be", name="seed", value=seed, allowed=labels.text("allowed.whole", range=bounds)))
        return seed

    # -- a variant -----------------------------------------------------------------------------

    def draw(self, seed=0):
        """The inputs of a variant by name, those of the second question as ``then.<name>``.

        Parameters
        ----------
        seed : int
            Which variant [-], 0 for the printed one

        Returns
        -------
        dict
            In base units, rows of catalogues by their names
        """
        numbers = uniform(f"{self.name} {self._seed(seed)}")
        return {n: values[int(next(numbers) * len(values))] if seed else values[0] for n, values in self.draws.items()}

    def values(self, given):
        """Every value of the formulas by name (choices as positions), for drawn inputs [base units]."""
        rows, found = {o: row(o, given) for o in self.pickers}, {}
        for root in self.roots:
            values = root.evaluate(**taken(root, given | rows))
            if not root.result.choices:
                root.result.check(values[root.name])
            found |= values
        return found

    def fill(self, template, given):
        """A template with the values of a variant, for drawn inputs."""
        first = {n: v for n, v in given.items() if not n.startswith(THEN)}
        second = first | {n.removeprefix(THEN): v for n, v in given.items() if n.startswith(THEN)}
        found = {"": self.values(first), THEN: self.values(second) if second != first else {}}

        def shown(place):
            name, how = place[1].removeprefix(THEN), place[2]
            values, picked = (found[THEN], second) if place[1].startswith(THEN) else (found[""], first)
            if name in self.pickers:
                return labels.told(picked[name])
            if name not in values or how and how not in FORMATS:
                raise self._wrong(f"exercise.{self.name}", place[0], [*self.pickers, *values, *FORMATS])
            q, x = self.formulas[name].result if name in self.formulas else self.inputs[name], values[name]
            told = self.words.get(name, {}).get(str(q.choices[int(x)]) if q.choices else f"{x:.15g}")
            return FORMATS[how](q, x) if how else told or q.human(x)

        return PLACE.sub(shown, template)

    def ask(self, seed=0):
        """The question of a variant, in the current language."""
        return self.fill(labels.text(f"exercise.{self.name}.ask"), self.draw(seed))

    def answer(self, seed=0):
        """The worked answer of a variant, in the current language."""
        return self.fill(labels.text(f"exercise.{self.name}.answer"), self.draw(seed))

    def __repr__(self):
        return f"{self.number} {self.ask(self.seed)}".strip()

    # -- the page ------------------------------------------------------------------------------

    def html(self):
        """The question with its folded answer as printed, with the specification that makes it live."""
        data = json.dumps(self.page_spec | own(self.formulas), ensure_ascii=False).replace("</", "<\\/")
        number = f"<strong>{html.escape(self.number)}</strong> " if self.number else ""
        return (f'<div class="onegpu-exercise">\n<p>{number}{html.escape(self.ask())}</p>\n'
                f"<details><summary>{labels.text('calculator.exercise.answer')}</summary>\n<p>{html.escape(self.answer())}</p>\n</details>\n"
                f'<script type="application/json">{data}</script>\n</div>')
