"""The calculator: formulas with sliders, live in Jupyter, Colab and the static page.

The front end is ``calculator.js``, one plain script. In Jupyter it is an anywidget; in the built
book the same script finds the ``text/html`` below and makes it live, with no kernel and no server.
"""

import html
import json
from dataclasses import fields
from functools import cache
from math import log2
from pathlib import Path

import anywidget
import traitlets

from . import calibrate, catalog, configs, labels, shape, units
from .formula import REGISTRY, Largest, plain, search_order, takes

HERE = Path(__file__).parent
#: What a model's shape computes: attribute of a model -> formula.
COUNTS = {f.result.source.partition(".")[2]: f.name for f in shape._section.formulas if f.result.source}
CATALOGS = {"model": catalog.MODELS, "gpu": catalog.GPUS, "network": catalog.NETWORKS, "recipe": catalog.RECIPES}


def slider(q):
    """How a slider runs over a quantity: its ends, its scale and its number of steps."""
    low, high = q.slider
    if q.doubles:
        return {"low": low, "high": high, "log": True, "steps": round(log2(high / low)), "whole": True}
    if low > 0 and high / low >= 1000 or high > 1e4 and low > 0:
        return {"low": low, "high": high, "log": True, "steps": 400}
    steps = (high - low) * 2 if q.unit.startswith("B/") and not q.integer else high - low if q.integer and high - low <= 400 else 100
    return {"low": low, "high": high, "log": False, "steps": int(steps)}


def described(q):
    """What the front end needs to know of a quantity."""
    found = {"label": q.label, "unit": q.unit, "allowed": q.allowed}
    if q.choices:
        return found | {"choices": [{"value": c, "label": q.human(i)} for i, c in enumerate(q.choices)]}
    bounds = {"low": float(q.valid.inf), "high": float(q.valid.sup), "lowOpen": bool(q.valid.left_open), "highOpen": bool(q.valid.right_open)}
    found |= {k: v for k, v in bounds.items() if abs(v) != float("inf")} | {"integer": q.integer}
    return found | {"slider": slider(q)} if q.slider else found


def library(formulas, attributes, names=None):
    """Everything that calculators share: formulas, quantities, catalogue rows, words.

    Parameters
    ----------
    formulas : sequence of Formula
        In the order of evaluation
    attributes : dict of str to set of str
        Which attributes of each catalogue's rows are wanted
    names : iterable of str
        Further quantities to describe

    Returns
    -------
    dict
        Ready for JSON; a formula is its JavaScript expression
    """
    own = {}
    if "model" in attributes:  # what reads a config.json and counts its parameters
        own = {"counts": COUNTS, "shape": [f.name for f in shape._section.formulas], "fields": list(shape.active_params.inputs()), "legal": [r.name for r in shape.RULES], "families": configs.javascript()}
        formulas = {f.name: f for f in [*formulas, *shape._section.formulas]}.values()
    quantities = {f.name: f.result for f in formulas} | {n: q for f in formulas for n, q in f.inputs().items()}
    quantities |= {n: REGISTRY[n] for n in names or ()}
    rows = {owner: {row.name: {a: getattr(row, a) for a in sorted(attributes[owner])} for row in CATALOGS[owner].values()} for owner in attributes}
    words = {key: labels.lookup(key) for key in ("error", "allowed", "unit", "join", "calculator", "config")}
    rules = {n: r for f in formulas for n, r in f.all_rules().items()}
    words["rule"] = labels.lookup("rule")
    words["told"] = {n: t for found in rows.values() for n in found if (t := labels.told(n)) != n}
    return {"formulas": {f.name: f.javascript for f in formulas}, "rules": {n: r.javascript for n, r in rules.items()}, "quantities": {n: described(q) for n, q in quantities.items()},
            "rows": rows, "words": words, "suffixes": units.SUFFIXES, "range": ["gpu", *calibrate.RANGE], "factor": calibrate.FACTOR} | own


def row(owner, params):
    """The row of a catalogue that is picked, or the reader's own model."""
    own = params.get("shape") if owner == "model" else None
    return catalog.Transformer(**own) if own and own["name"] == params[owner] else CATALOGS[owner][params[owner]]


def own(formulas, inputs=()):
    """The formulas that the site does not ship, with what the page must know of them: ``{"own": …}``, or nothing."""
    changed = {n: f.javascript for n, f in formulas.items() if published().get(n) != f.javascript}
    if not changed:
        return {}
    known = library(list(formulas.values()), {}, inputs)
    return {"own": {"formulas": changed, "rules": known["rules"], "quantities": known["quantities"], "words": {"rule": {n: known["words"]["rule"][n] for n in known["rules"]}}}}


def _moved(formulas, axes, among):
    """Those of some formulas that change with the axes, in order of evaluation."""
    moving = set(axes)
    for name, formula in formulas.items():
        if not moving.isdisjoint(q.name for q in formula._arguments):
            moving.add(name)
    return [f.name for f in among if f.name in moving]


def _called(formula):
    """The module and the name under which Python finds a formula; None for one of the reader's own."""
    return next(((m.__name__.rpartition(".")[2], n) for m in modules() for n, f in vars(m).items() if f is formula), None)


class Live(anywidget.AnyWidget):
    """A widget that the static page makes live too: ``html()`` is what is read without JavaScript, with its specification."""

    _css = HERE / "calculator.css"
    _esm = traitlets.Unicode((HERE / "calculator.js").read_text("utf-8") + "\nexport default { render: onegpu.render };\n").tag(sync=True)
    spec = traitlets.Dict().tag(sync=True)
    _ipython_display_ = None  # ipywidgets 7 would hide text/html behind it

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**(data or {}), "text/plain": repr(self), "text/html": self.html()}, metadata


class Calculator(Live):
    """Sliders over formulas: a table of results, a stack against a capacity, a curve.

    Parameters
    ----------
    *outputs : Formula
        What the table shows, in this order
    title : str
        Key of its title under ``calculator.title``, or the title itself
    start : dict
        What the calculator shows first, in this order, with its value: rows of a catalogue
        (``model``, ``gpu``, ``network``, ``recipe``) and inputs; None leaves an input to its row or its default;
        ``model`` may be a ``Transformer`` of one's own
    stack : Formula
        A formula that compares sums, e.g. ``training_memory``: one bar for each sum
    capacity : str
        Name of the input to draw as the stack's limit
    on_top : sequence of str
        Names of inputs added on top of each bar
    curve : (str, Formula)
        The input along the horizontal axis and the formula along the vertical one
    calibrates : dict
        Input -> the output that replaces it in all calculators when the reader asks for it
    triangle : sequence of Formula
        Three shares, drawn as a triangle
    search : dict
        ``axes`` (name -> values to try), ``limit`` (a formula that must not be negative), ``order``
        (the formula to make small), ``show`` (what the list of plans shows), and what is doubled
        alone (``changes``) to see how it moves the best plan's ``goal``

    Attributes
    ----------
    params : dict
        What the reader set, by name; can be set, linked and observed
    result : dict
        The outputs' values by name, in base units, computed in Python; ``{"error": message}`` if refused

    Raises
    ------
    ValueError
        If ``start`` names something that no output takes.
    """

    params = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict()

    def __init__(self, *outputs, title="", start=None, stack=None, capacity=None, on_top=(), curve=None, search=None, triangle=None, calibrates=None):
        self.outputs, self.stack = outputs, stack
        roots = [*outputs, *([stack] if stack else []), *([curve[1]] if curve else [])]
        self.formulas = {f.name: f for root in roots for f in root.graph()}
        taken = {n for root in roots for n in root.inputs()}  # without what is only searched
        self.inputs, self.sources, also = {}, {}, []
        for formula in self.formulas.values():
            for name, q in formula.inputs(self.formulas).items():
                if name not in taken:
                    continue
                source = formula.sources.get(name, "")
                self.inputs[name] = q
                if self.sources.setdefault(name, source) != source:
                    also.append((name, source))
        for name in filter(None, (capacity, *on_top)):
            self.inputs.setdefault(name, REGISTRY[name])
            self.sources.setdefault(name, REGISTRY[name].source or "")
        show = self._show = list(start or {})
        own, shaped = (start or {}).get("model"), {}
        if isinstance(own, catalog.Transformer):
            start = start | {"model": own.name}
            if catalog.MODELS.get(own.name) is not own:
                shaped = {"shape": {f.name: getattr(own, f.name) for f in fields(catalog.Transformer)}}
        start = {name: value for name, value in (start or {}).items() if value is not None}
        self.pickers = [o for o in CATALOGS if o in start and any(s.startswith(o + ".") for s in self.sources.values())]
        unknown = [n for n in show if n not in self.inputs and n not in self.pickers]
        if unknown:
            raise ValueError(f"start = {unknown[0]}: must be one of {', '.join([*CATALOGS, *self.inputs])}")
        began = start | shaped
        for name, value in start.items():
            REGISTRY[name].check(value) if name in self.inputs else row(name, began)
        attributes = {o: {s.partition(".")[2] for n, s in self.sources.items() if s.startswith(o + ".") and n not in start} for o in self.pickers}
        self.equal = []
        for name, second in also:
            (owner, _, one), (_, _, other) = self.sources[name].partition("."), second.partition(".")
            if name not in start:
                self.equal.append((owner, one, other))
        for owner, *pair in self.equal:
            attributes.get(owner, set()).update(pair)
        self.rows = {o: [r.name for r in CATALOGS[o].values() if all(getattr(r, a) is not None for a in attributes[o]) and not self._parted(o, r)] for o in self.pickers}
        spec = {"title": labels.lookup(f"calculator.title.{title}") or title, "pickers": self.rows, "show": show, "start": began, "attributes": {o: sorted(a) for o, a in attributes.items()},
                "inputs": {n: {"source": self.sources[n] if self.sources[n].partition(".")[0] in self.pickers and n not in start else None,
                               "start": start.get(n, q.start), **({"quiet": True} if self._quiet(n) else {}), **({"usual": True} if start.get(n, q.start) == q.default else {})} for n, q in self.inputs.items()},
                "formulas": list(self.formulas), "outputs": [f.name for f in outputs]}
        if self.equal:
            spec["equal"] = self.equal
        if stack:
            bars = [stack] if stack.terms else stack.uses
            spec["stack"] = {"bars": {u.name: [p.name for p in u.terms] for u in bars}, "capacity": capacity, "onTop": list(on_top)}
        self.rules = {n: r for f in self.formulas.values() for n, r in f.all_rules().items()}
        if self.rules:
            spec["rules"] = list(self.rules)
        calls = {f.name: _called(f) for f in outputs}
        if all(calls.values()):
            spec["python"] = {f.name: [*calls[f.name], self._takes(f)] for f in outputs}
        searched = [f for f in outputs if isinstance(f, Largest)]
        if searched:
            spec["largest"] = {f.name: {"axis": f.axis.name, "limit": f.limit.name, "range": f.range, "whole": f.axis.integer, "formulas": _moved(self.formulas, {f.axis.name}, f.graph())} for f in searched}
        if calibrates:
            spec["calibrate"] = {n: f.name for n, f in calibrates.items()}
        if any(f is calibrate.run_mfu for f in outputs):
            spec["judge"] = {"mfu": "run_mfu", "size": "active_params", "runs": list(calibrate.published_mfus().values()), "count": calibrate.PEERS}
        if triangle:
            spec["triangle"] = [f.name for f in triangle]
        if search:
            moving = {*search["axes"], *_moved(self.formulas, set(search["axes"]), self.formulas.values())}
            wanted = [getattr(f, "name", f) for f in (search["limit"], search["order"], *search["show"], search.get("goal"))]
            goals = [self.formulas[n] for n in wanted if n in self.formulas]
            order = search_order(search["axes"], goals)
            spec["order"] = order | {when: [n for n in order[when] if n in moving] for when in ("first", "then")}
            spec["search"] = {k: v.name if hasattr(v, "name") else [getattr(n, "name", n) for n in v] if k == "show" else v for k, v in search.items()}
        if curve:
            spec["curve"] = {"x": curve[0], "y": curve[1].name}
        self.page_spec = spec
        shared = library(list(self.formulas.values()), {o: set(a) for o, a in attributes.items()}, [*self.inputs, *(f.name for f in outputs)])
        super().__init__(spec=spec | {"library": shared}, params=began)
        self._compute()

    def _takes(self, formula):
        """Which of the pickers and inputs an output takes, in their order, as ones and zeros."""
        names = takes(formula)
        return "".join(str(int(n in names)) for n in [*self.pickers, *self.inputs])

    def _quiet(self, name):
        """Whether an input has no control: what only some models have comes with the model."""
        owner, q = self.sources[name].partition(".")[0], self.inputs[name]
        return owner == "model" and owner in self.pickers and q.default is not None and name not in self._show

    def _parted(self, owner, row):
        """Whether one input would have to come from two attributes of a row that differ, such as all and active parameters."""
        return any(owner == o and getattr(row, a) != getattr(row, b) for o, a, b in self.equal)

    @traitlets.observe("params")
    def _compute(self, change=None):
        try:
            for owner in self.pickers:
                if owner in self.params and self._parted(owner, row(owner, self.params)):
                    raise ValueError(labels.text("calculator.parted", name=owner, value=self.params[owner]))
            self.result = {f.name: f(**self.call(f)) for f in self.outputs}
        except ValueError as error:
            self.result = {"error": str(error)}

    def call(self, formula):
        """The keyword arguments with which ``formula`` gives the calculator's number."""
        known, filled = formula.inputs(), {n: s.partition(".")[0] for n, s in formula.sources.items()}
        rows = {o: row(o, self.params) if o in self.params else CATALOGS[o][self.rows[o][0]] for o in self.pickers if o in filled.values()}
        filled = {n for n, o in filled.items() if o in rows}
        own = {n: v for n, v in self.params.items() if n in known}
        first = {n: self.page_spec["inputs"][n]["start"] for n in known if n not in own and n not in filled}
        return rows | first | own

    def value(self, name):
        """The present value of an input: what the reader set, else its row's, else its first."""
        owner, _, attribute = (self.page_spec["inputs"][name]["source"] or "").partition(".")
        return self.params[name] if name in self.params else getattr(row(owner, self.params), attribute) if owner else self.page_spec["inputs"][name]["start"]

    def shown(self, name):
        """The present value of an input as people read it; as it was given, if it is refused."""
        q, value = self.inputs[name], self.value(name)
        try:
            x = q.check(value)
            counted = q.unit in ("", "tokens") and not q.choices and x < 1e6 and float(x).is_integer()
            return f"{plain(x)} {units.shown(q.unit)}".strip() if counted else q.human(x)  # in full, as in its box
        except ValueError:
            return str(value)

    def __repr__(self):
        return f"Calculator({', '.join(f.name for f in self.outputs)})"

    # -- the page ----------------------------------------------------------------------------

    def html(self):
        """A readable table of the first values, with the specification that makes it live."""
        spec = self.page_spec | own(self.formulas, self.inputs)
        data = json.dumps(spec, ensure_ascii=False).replace("</", "<\\/")
        return (f'<div class="onegpu-calculator">\n<table>\n<caption>{html.escape(spec["title"])}</caption>\n'
                + "".join(f'<tr><th scope="row">{html.escape(label)}</th><td>{html.escape(value)}</td></tr>\n' for label, value in self.table())
                + f'</table>\n<script type="application/json">{data}</script>\n</div>')

    def table(self):
        """The rows of the readable table: (label, value) of what is set and of what comes out."""
        set_ = [(labels.text(f"calculator.pick.{o}"), labels.told(self.params[o])) for o in self.pickers]
        for name in self.page_spec["show"]:
            if name in self.inputs:
                set_.append((self.inputs[name].label, self.shown(name)))
        if "error" in self.result:
            return [*set_, (labels.text("calculator.results"), self.result["error"])]
        return set_ + [(f.result.label, f.result.human(self.result[f.name])) for f in self.outputs]


def modules():
    """The modules of formulas, one a section."""
    from . import compute, coupling, finetune, memory, planner, scaling
    return [shape, memory, compute, scaling, coupling, planner, finetune, calibrate]


@cache
def published():
    """The JavaScript of every formula of the library, by name: the site ships it once."""
    return {f.name: f.javascript for m in modules() for f in m._section.formulas}


def site_script():
    """The script that the static site ships once: formulas, quantities, catalogues, words.

    Returns
    -------
    str
        A classic script that sets ``window.ONEGPU``; its formulas are functions, so the page needs no ``eval``
    """
    formulas = [f for m in modules() for f in m._section.formulas]
    sources = {s for m in modules() if m is not shape for f in m._section.formulas for s in f.sources.values()}
    attributes = {o: {s.partition(".")[2] for s in sources if s.startswith(o + ".")} for o in CATALOGS}
    shared = library(formulas, attributes, [n for n, q in REGISTRY.items()])
    families = shared.pop("families")
    functions = {kind: ",\n".join(f"{n}: v => {code}" for n, code in shared.pop(kind).items()) for kind in ("formulas", "rules")}
    return (f"window.ONEGPU = {json.dumps(shared, ensure_ascii=False, separators=(',', ':'))};\n"
            + "".join(f"window.ONEGPU.{kind} = {{\n{code}\n}};\n" for kind, code in functions.items())
            + f"window.ONEGPU.families = {families};\n")
