"""A formula has one source and four faces.

A :class:`Formula` holds one SymPy expression. From it come the equation on the page, a number or
an array from keyword arguments, the JavaScript that the static page runs, and the inputs of a
calculator. A :class:`Quantity` is a SymPy symbol that knows its unit, its domain and where its
value can come from.
"""

import difflib
import functools
import re

import sympy as sp
from sympy.printing.jscode import JavascriptCodePrinter
from sympy.printing.latex import LatexPrinter
from sympy.printing.numpy import NumPyPrinter

from . import labels, units

POSITIVE = sp.Interval.open(0, sp.oo)
NONNEGATIVE = sp.Interval(0, sp.oo)
AT_LEAST_ONE = sp.Interval(1, sp.oo)
SHARE = sp.Interval.Lopen(0, 1)

#: Every quantity by name. It is also the book's table of symbols.
REGISTRY = {}


class Quantity(sp.Symbol):
    """A named, measured symbol. One name has one meaning and one printed symbol.

    Parameters
    ----------
    name : str
        The field's name, e.g. ``"seq_len"``: the keyword that formulas take
    symbol : str
        LaTeX of the printed symbol
    unit : str
        Base unit; ``""`` for a count, ``"share"`` for a fraction that is shown in percent
    valid : sympy.Interval
        Mathematical domain
    integer : bool
        Whether only whole numbers are meant
    choices : sequence
        The values of a choice: strings, numbers or ``(False, True)``. In an expression a choice
        is its position in this list; see :meth:`pick`
    start : float
        The calculator's first value, in the base unit
    slider : (float, float)
        The slider's range, in the base unit
    default : object
        The value of a call that leaves it out; without it the quantity must be given
    source : str
        Where the value can come from: ``"model.<attribute>"`` or ``"gpu.<attribute>"``
    doubles : bool
        Whether its slider goes from one power of two to the next

    Raises
    ------
    ValueError
        If the name is registered with another meaning.
    """

    def __new__(cls, name, symbol, unit="", *, valid=POSITIVE, integer=False, choices=None,
                start=None, slider=None, default=None, source=None, doubles=False):
        sign = {}
        if choices or valid.inf >= 0:
            sign = {"positive": True} if not choices and (valid.inf > 0 or valid.left_open) else {"nonnegative": True}
        self = sp.Symbol.__xnew__(cls, name, real=True, **sign)
        meaning = dict(symbol=symbol, unit=unit, valid=valid, integer=integer, choices=choices and tuple(choices),
                       start=default if start is None else start, slider=slider, default=default, source=source, doubles=doubles)
        known = REGISTRY.get(name)
        if known is not None:
            if known.meaning != meaning:
                raise ValueError(f"name = {name}: must be new; it is registered as {known.tex}")
            return known
        self.meaning = meaning
        REGISTRY[name] = self
        return self

    def __getattr__(self, key):
        try:
            return self.__dict__["meaning"][key]
        except KeyError:
            raise AttributeError(key) from None

    @property
    def tex(self):
        """LaTeX of the symbol."""
        return self.meaning["symbol"]

    @property
    def label(self):
        """What it is, in the current language."""
        return labels.lookup(f"quantity.{self.name}") or self.name.replace("_", " ")

    @property
    def allowed(self):
        """What values are allowed, in words."""
        if self.choices:
            return labels.text("allowed.one_of", choices=labels.text("join.list").join(map(str, self.choices)))
        low, high = self.valid.inf, self.valid.sup
        words = []
        if low > -sp.oo:
            words.append(labels.text("allowed.above" if self.valid.left_open else "allowed.at_least", bound=low))
        if high < sp.oo:
            words.append(labels.text("allowed.below" if self.valid.right_open else "allowed.at_most", bound=high))
        words = labels.text("allowed.and").join(words)
        return labels.text("allowed.whole", range=words) if self.integer else words

    def check(self, value):
        """The value as a float (or an array of floats; for a choice, its position).

        Raises
        ------
        ValueError
            If it is of the wrong kind, not finite, or outside the domain. The message names
            the quantity, the value and what is allowed.
        """
        import numpy as np  # here, so that importing the library does not load it

        if self.choices:
            return self._check_choice(value)
        if hasattr(value, "name") or isinstance(value, (str, bytes, bool, np.bool_)) or value is None:
            raise self.error(getattr(value, "name", value), labels.text("allowed.number"))
        try:
            array = np.asarray(value)
            if array.dtype == bool or np.iscomplexobj(array):
                raise TypeError
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise self.error(value, labels.text("allowed.number")) from None
        low, high = float(self.valid.inf), float(self.valid.sup)
        wrong = ~np.isfinite(array)
        if wrong.any():
            raise self.error(array[wrong].flat[0], labels.text("allowed.finite"))
        wrong = (array <= low if self.valid.left_open else array < low) | (array >= high if self.valid.right_open else array > high)
        if self.integer:
            wrong |= array != np.floor(array)
        if wrong.any():
            raise self.error(array[wrong].flat[0] if array.ndim else value, self.allowed)
        return array if array.ndim else float(array)

    def _check_choice(self, value):
        import numpy as np

        if isinstance(value, (list, tuple, np.ndarray)):
            return np.array([self._check_choice(v) for v in np.asarray(value, dtype=object).flat], float).reshape(np.shape(value))
        for position, choice in enumerate(self.choices):
            if value == choice and isinstance(value, (bool, np.bool_)) == isinstance(choice, bool):
                return float(position)
        raise self.error(getattr(value, "name", value), self.allowed)

    def error(self, value, allowed):
        """The ``ValueError`` that names this quantity, the value and what is allowed."""
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        return ValueError(labels.text("error.must_be", name=self.name, value=value, allowed=allowed))

    def pick(self, cases, otherwise=0):
        """The expression that depends on this choice: ``{value: expression}``, else ``otherwise``."""
        pairs = [(sp.sympify(e), sp.Eq(self, self.choices.index(v))) for v, e in cases.items()]
        return sp.Piecewise(*pairs, (sp.sympify(otherwise), True))

    def human(self, value):
        """The value as people read it."""
        if self.choices:
            choice = self.choices[int(value)]
            key = str(choice).lower() if isinstance(choice, bool) else f"{self.name}.{choice}"
            return labels.lookup(f"choice.{key}") or str(choice)
        return units.human(value, self.unit)


class _Latex(LatexPrinter):
    """Quantities print as their symbols, in the order of the registry; choices print as words."""

    def __init__(self):
        super().__init__({"order": "none", "mul_symbol": r" \, ", "root_notation": True})
        self._rank = {q: rank for rank, q in enumerate(REGISTRY.values())}

    def _key(self, expr):
        ranks = [self._rank.get(q, len(self._rank)) for q in expr.free_symbols]
        return isinstance(expr, sp.Piecewise), expr.could_extract_minus_sign(), bool(ranks), min(ranks, default=0), str(expr)

    def _sorted(self, args):
        return sorted(args, key=self._key)

    def _print_Quantity(self, q):
        return q.tex

    _print_Symbol = _print_Quantity

    def _as_ordered_terms(self, expr, order=None):
        return self._sorted(expr.args)

    def _print_Add(self, expr, order=None):
        """A sum; one of several choices has a line for each, as they are wide."""
        wide = [term for term in self._sorted(expr.args) if term.has(sp.Piecewise)]
        if len(wide) < 2:
            return super()._print_Add(expr, order)
        rest = sp.Add(*(term for term in expr.args if term not in wide), evaluate=False)
        first, *others = map(self._print, [rest, *wide] if rest != 0 else wide)
        lines = [first, *(other if other.startswith("-") else f"+ {other}" for other in others)]
        return r"\begin{aligned} & " + r" \\ & ".join(lines) + r" \end{aligned}"

    def _print_Mul(self, expr):
        if not expr.is_Mul:  # a reciprocal, printed as a fraction
            return super()._print_Mul(expr)
        return super()._print_Mul(sp.Mul(*self._sorted(expr.args), evaluate=False))

    def _print_Max(self, expr, exp=None):
        return rf"\max\left({', '.join(map(self._print, self._sorted(expr.args)))}\right)"

    def _print_Piecewise(self, expr):
        *cases, (last, _) = expr.args
        rows = [rf"{self._print(value)} & {self._print(condition)}" for value, condition in cases]
        rows.append(rf"{self._print(last)} & \text{{{labels.text('relation.otherwise')}}}")
        return r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}"

    def _words(self, expr, word):
        return rf" \text{{ {labels.text(word)} }} ".join(map(self._print, sorted(expr.args, key=str)))

    def _print_And(self, expr):
        return self._words(expr, "relation.and")

    def _print_Or(self, expr):
        picked = {term.lhs if isinstance(term, sp.Eq) else None for term in expr.args}
        if len(picked) == 1 and isinstance(q := picked.pop(), Quantity) and q.choices:
            values = f" {labels.text('relation.or')} ".join(q.human(term.rhs) for term in sorted(expr.args, key=str))
            return rf"\text{{{q.label}{labels.text('join.is')}{values}}}"
        return self._words(expr, "relation.or")

    def _print_Relational(self, relation):
        q = relation.lhs
        if not (isinstance(q, Quantity) and q.choices):
            return super()._print_Relational(relation)
        choice = q.choices[int(relation.rhs)]
        if choice is True:
            return rf"\text{{{q.label}}}"
        colon = labels.text("join.is" if relation.rel_op == "==" else "relation.is_not")
        return rf"\text{{{q.label}{colon}{q.human(relation.rhs)}}}"


class _NumPy(NumPyPrinter):
    """NumPy code that broadcasts: SymPy's own ``Max``, ``Piecewise``, ``And`` and ``Or`` need equal shapes."""

    def _fold(self, function, expr):
        return functools.reduce(lambda a, b: f"{self._module_format('numpy.' + function)}({a}, {b})", map(self._print, expr.args))

    def _print_Max(self, expr):
        return self._fold("maximum", expr)

    def _print_Min(self, expr):
        return self._fold("minimum", expr)

    def _print_And(self, expr):
        return self._fold("logical_and", expr)

    def _print_Or(self, expr):
        return self._fold("logical_or", expr)

    def _print_Piecewise(self, expr):
        *cases, (last, _) = expr.args
        code = self._print(last)
        for value, condition in reversed(cases):
            code = f"{self._module_format('numpy.where')}({self._print(condition)}, {self._print(value)}, {code})"
        return code


class _JavaScript(JavascriptCodePrinter):
    """JavaScript over one object ``v`` that holds every value by name."""

    def _print_Quantity(self, q):
        return f"v.{q.name}"

    _print_Symbol = _print_Quantity


def javascript(expr):
    """An expression as JavaScript, over an object ``v`` that holds every value by name."""
    return " ".join(_JavaScript().doprint(expr).split())


class Case:
    """An anchored case: inputs whose value is published or counted, and where it is printed."""

    def __init__(self, inputs, value, where, rel=1e-9):
        self.inputs, self.value, self.where, self.rel = inputs, value, where, rel


def plain(x):
    """A number in a message: all of a whole one, six digits of another."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.6g}"


class Rule:
    """A condition on the inputs of a formula, e.g. that the heads divide; broken, it is explained.

    Parameters
    ----------
    name : str
        Key of its message under ``rule``: ``"{tensor_parallel}"`` in it is that input's value
    condition : sympy.Boolean
        Over inputs
    """

    def __init__(self, name, condition):
        self.name, self.condition = name, condition
        self.arguments = sorted(condition.free_symbols, key=lambda q: q.name)

    @functools.cached_property
    def holds(self):
        """The condition as a function of its arguments, for floats and arrays."""
        return sp.lambdify(self.arguments, self.condition, modules="numpy", printer=_NumPy({"fully_qualified_modules": False, "inline": True}))

    @functools.cached_property
    def holds_for_one(self):
        """The same for plain numbers, without loading NumPy."""
        return sp.lambdify(self.arguments, self.condition, modules="math")

    @functools.cached_property
    def javascript(self):
        """The condition in JavaScript, over an object ``v``."""
        return javascript(self.condition)

    @property
    def message(self):
        """What is wrong when it does not hold; the first input named is the one to change."""
        return labels.text(f"rule.{self.name}")

    def check(self, values):
        """Raise ``ValueError`` if the condition does not hold for all of ``values``."""
        import numpy as np

        with np.errstate(all="ignore"):
            bad = ~np.asarray(self.holds(*(values[q.name] for q in self.arguments)), bool)
        if bad.any():
            shape = np.broadcast_shapes(bad.shape, *(np.shape(values[q.name]) for q in self.arguments))
            first = np.flatnonzero(np.broadcast_to(bad, shape))[0]
            shown = {q: np.broadcast_to(values[q.name], shape).flat[first] for q in self.arguments}
            raise ValueError(self.message.format(**{q.name: q.choices[int(x)] if q.choices else plain(x) for q, x in shown.items()}))


class _Doc:
    """The docstring of a class, and of each instance one made from its fields."""

    def __init__(self, text):
        self.text = text

    def __get__(self, instance, owner):
        return self.text if instance is None else docstring(instance)


class Formula:
    __doc__ = _Doc(
    """One expression: the equation, the function, the JavaScript and the calculator's input.

    Parameters
    ----------
    result : Quantity
        What it computes; its name is the formula's
    expr : sympy.Expr
        Over quantities, and over the results of the formulas in ``uses``
    uses : sequence of Formula
        The formulas that it refers to by their result
    fill : dict
        For single inputs, another place than the quantity's own to take the value from
    basis : str
        ``"derived"``, ``"measured"`` or ``"rule of thumb"``
    source : str
        Paper, section and equation
    cases : sequence of Case
        Anchored cases
    rules : sequence of Rule
        Conditions on its inputs, checked before anything is computed

    Notes
    -----
    Called with keyword arguments in base units it returns a float, or an array where one was
    given. Inputs that are left out are taken from ``calibration=``, ``gpu=``, ``model=`` or their
    default, in this order. A keyword that names a used formula's result replaces that formula.
    """
    )

    BASES = ("derived", "measured", "rule of thumb")

    def __init__(self, result, expr, *, uses=(), fill=None, basis="derived", source="", cases=(), number=None, rules=()):
        self.result, self.expr, self.uses, self.rules = result, sp.sympify(expr), tuple(uses), tuple(rules)
        self.fill, self.basis, self.source, self.cases, self.number = dict(fill or {}), basis, source, tuple(cases), number
        if basis not in self.BASES:
            raise ValueError(f"basis = {basis}: must be one of {', '.join(self.BASES)}")
        symbols = sorted(self.expr.free_symbols, key=str)
        ruled = {q for rule in self.rules for q in rule.arguments}
        for used in self.uses:
            if used.result not in symbols and used.result not in ruled:
                raise ValueError(f"uses = {used.name}: must stand in the expression of {result.name}")
        printed = {}
        for q in [result, *symbols]:
            if not isinstance(q, Quantity):
                raise ValueError(f"{q}: must be a Quantity in the expression of {result.name}")
            if printed.setdefault(q.tex, q) != q:
                raise ValueError(f"symbol = {q.tex}: must stand for one quantity in {result.name}, not {q.name} and {printed[q.tex].name}")

    @property
    def name(self):
        """The result's name."""
        return self.result.name

    def __repr__(self):
        return f"{self.name} = {self.expr}"

    # -- the graph ---------------------------------------------------------------------------

    def graph(self, given=()):
        """The formulas it needs in the order of evaluation, itself last; ``given`` results are known."""
        seen = {}

        def visit(formula):
            for used in formula.uses:
                if used.name not in given and used.name not in seen:
                    visit(used)
            seen[formula.name] = formula

        visit(self)
        return list(seen.values())

    def inputs(self, given=()):
        """The quantities that the graph needs from outside, by name, in order of first use."""
        return self._inputs_without(given) if given else dict(self._inputs)

    @functools.cached_property
    def _inputs(self):
        return self._inputs_without(())

    def _inputs_without(self, given):
        graph = self.graph(given)
        results = {f.name for f in graph}
        found = {}
        for formula in graph:
            for q in [*formula._arguments, *(q for r in formula.rules for q in r.arguments)]:
                if q.name not in results and q.name not in given:
                    found.setdefault(q.name, q)
        return found

    def all_rules(self, given=()):
        """The rules of every formula of the graph, by name."""
        return {rule.name: rule for formula in self.graph(given) for rule in formula.rules}

    @functools.cached_property
    def sources(self):
        """Where each input can come from: name -> ``"model.n_layers"``, the nearest formula's ``fill`` first."""
        found = {}
        for formula in reversed(self.graph()):
            for name in self.inputs():
                if name in formula.fill:
                    found.setdefault(name, formula.fill[name])
        return {n: found.get(n, q.source) for n, q in self.inputs().items() if found.get(n, q.source)}

    # -- the call ----------------------------------------------------------------------------

    def __call__(self, **given):
        """The value, in the result's base unit. See the class for what may be left out."""
        value = self.evaluate(**given)[self.name]
        return value if self.result.choices else self.result.check(value)

    def evaluate(self, **given):
        """Every value of the graph by name: the inputs, each formula, and the result last."""
        import numpy as np

        values = self.filled(**given)
        scalar = all(np.ndim(v) == 0 for v in values.values())
        values = self.compute(values, given)
        for rule in self.all_rules(given).values():
            rule.check(values)
        return {name: float(v) for name, v in values.items()} if scalar else values

    def compute(self, values, given=()):
        """Every value of the graph by name, from inputs that are checked already (choices as positions)."""
        import numpy as np

        values = {name: np.float64(v) for name, v in values.items()}  # divides by zero as JavaScript does
        with np.errstate(all="ignore"):
            for formula in self.graph(given):
                values[formula.name] = formula._numeric(*(values[q.name] for q in formula._arguments))
        return values

    #: Keywords that stand for a row of a catalogue, which fills in many inputs.
    OWNERS = ("gpu", "model", "network", "recipe")

    def filled(self, *, calibration=None, **given):
        """The checked inputs of a call, by name (choices as positions).

        Raises
        ------
        ValueError
            For an unknown, missing or illegal input.
        """
        owners = {o: given.pop(o) for o in self.OWNERS if given.get(o) is not None}
        known, parts = self.inputs(), {f.name: f.result for f in self.graph()[:-1]}
        for owner, value in owners.items():
            if owner not in takes(self):
                raise ValueError(labels.text("error.no_owner", formula=self.name, owner=owner, value=getattr(value, "name", value)))
            if getattr(value, "catalog_kind", None) != owner:
                raise ValueError(labels.text(f"error.{owner}", value=getattr(value, "name", value)))
        for name, value in given.items():
            if name not in known and name not in parts:
                raise ValueError(self._unknown(name, value))
        needed = self.inputs(given)
        values = {name: self._own({**known, **parts}[name], value) for name, value in given.items()}
        for name, q in needed.items():
            if name not in given:
                values[name] = q.check(self._look_up(q, owners, calibration))
        return values

    def _own(self, q, value):
        owner = getattr(value, "catalog_kind", None)
        if owner:
            raise ValueError(labels.text("error.meant_owner", name=q.name, value=value.name, owner=owner, allowed=q.allowed))
        return q.check(value)

    def _look_up(self, q, owners, calibration):
        if calibration is not None and q.name in calibration:
            return calibration[q.name]
        owner, _, attribute = self.sources.get(q.name, "").partition(".")
        holder = owners.get(owner)
        value = getattr(holder, attribute, None) if holder is not None else None
        if value is None:
            value = q.default
        if value is None:
            key = "error.missing_in" if holder is not None else "error.missing_or" if owner else "error.missing"
            raise ValueError(labels.text(key, formula=self.name, name=q.name, owner=owner, allowed=q.allowed,
                                         holder=getattr(holder, "name", "")))
        return value

    def _unknown(self, name, value):
        known = [*self.inputs(), *(f.name for f in self.graph()[:-1])]
        close = difflib.get_close_matches(name, known, 1)
        hint = labels.text("error.did_you_mean", name=close[0]) if close else ""
        return labels.text("error.unknown", formula=self.name, name=name, value=value, known=labels.text("join.list").join(known)) + hint

    @functools.cached_property
    def _arguments(self):
        return sorted(self.expr.free_symbols, key=lambda q: q.name)

    @functools.cached_property
    def _numeric(self):
        return sp.lambdify(self._arguments, self.expr, modules="numpy", printer=_NumPy({"fully_qualified_modules": False, "inline": True}))

    def parts(self, **inputs):
        """The values of the formulas that it adds or compares, nested for sums: ``{phase: {part: value}}``."""
        values = self.evaluate(**inputs)
        return {u.name: {p.name: values[p.name] for p in u.terms} if u.terms else values[u.name] for u in self.uses}

    @property
    def terms(self):
        """The formulas that it is the plain sum of, or none."""
        terms = [u for u in self.uses if u.result in self.expr.args]
        return terms if self.expr.is_Add and len(terms) == len(self.expr.args) else []

    # -- new formulas from this one ----------------------------------------------------------

    def replace(self, **changes):
        """The same formula with some of its fields changed, e.g. ``expr=``."""
        fields = dict(result=self.result, expr=self.expr, uses=self.uses, fill=self.fill, basis=self.basis, source=self.source, cases=self.cases, number=self.number, rules=self.rules)
        if "expr" in changes and "uses" not in changes:
            changes["uses"] = [u for u in self.uses if u.result in sp.sympify(changes["expr"]).free_symbols]
        return Formula(**(fields | changes))

    def using(self, formula):
        """The same formula with another version of one that it refers to, at any depth."""
        uses = [formula if u.name == formula.name else u.using(formula) for u in self.uses]
        return self if uses == list(self.uses) else self.replace(uses=uses)

    def connect(self, *formulas):
        """The same formula with those of its inputs computed that the given formulas result in, at any depth."""
        uses = [u.connect(*formulas) for u in self.uses]
        known = {u.name for u in uses} | {self.name}
        more = [f for f in formulas if f.name not in known and f.result in self.expr.free_symbols | {q for r in self.rules for q in r.arguments}]
        return self.replace(uses=uses + more) if more or uses != list(self.uses) else self

    def expand(self):
        """The formula with every formula that it uses substituted."""
        expr = self.expr
        for used in reversed(self.graph()[:-1]):
            expr = expr.xreplace({used.result: used.expr})  # subs would try to simplify nested cases, for minutes
        return self.replace(expr=expr, uses=(), fill=self._all_fills())

    def _all_fills(self):
        return {n: s for n, s in self.sources.items() if s != self.inputs()[n].source}

    def bind(self, result, **inputs):
        """A formula with another result whose inputs stand for other quantities or expressions, and used formulas for other formulas."""
        swap = {REGISTRY[name]: getattr(value, "result", value) for name, value in inputs.items()}
        uses = []
        for used in self.uses:
            if isinstance(inputs.get(used.name), Formula):
                used = inputs[used.name]
            elif set(inputs) & set(used.inputs()):
                name = Quantity(f"{result.name}_{used.name}", rf"{used.result.tex}'", used.result.unit, valid=used.result.valid)
                swap[used.result] = name
                used = used.bind(name, **{n: v for n, v in inputs.items() if n in used.inputs()})
            uses.append(used)
        return self.replace(result=result, expr=self.expr.subs(swap, simultaneous=True), uses=uses, cases=(), number=None,
                            fill={n: s for n, s in self.fill.items() if n not in inputs})

    def solve_for(self, quantity, result, **fields):
        """The inverse: the formula of ``quantity`` as ``result``, in terms of this one's result.

        Raises
        ------
        ValueError
            If the expression does not have exactly one positive solution.
        """
        solutions = sp.solve(self.expand().expr - self.result, quantity)
        if len(solutions) != 1:
            raise ValueError(f"solve_for = {quantity}: must have one solution in {self.name}, not {len(solutions)}")
        return Formula(result, sp.factor_terms(solutions[0]), **fields)

    # -- the other faces ---------------------------------------------------------------------

    @property
    def latex(self):
        """The equation, one level deep, without its number."""
        return f"{self.result.tex} = {_Latex().doprint(self.expr)}"

    def _repr_latex_(self):
        tag = rf" \tag{{{self.number}}}" if self.number else ""
        return f"$$\n{self.latex}{tag}\n$$"

    def _repr_markdown_(self):
        return f"{self._repr_latex_()}\n\n{self.legend}\n\n{self.remark}"

    @property
    def legend(self):
        """What the symbols of the equation stand for, but those that are words already; two of one label differ in their units."""
        symbols = sorted(self.expr.free_symbols, key=list(REGISTRY.values()).index)
        symbols = [q for q in (self.result, *(q for q in symbols if q.tex in self.latex.partition("=")[2])) if q.tex != rf"\text{{{q.label}}}"]
        named = [q.label for q in symbols]
        colon, space = re.fullmatch(r"(\S+)(\s*)", labels.text("join.is")).groups()  # within the mathematics, so that no line begins with it
        told = (rf"${q.tex}\text{{{colon}}}${space}{q.label}" + (f" [{units.shown(q.unit)}]" if named.count(q.label) > 1 else "") for q in symbols)
        return labels.text("relation.where", symbols=labels.text("join.parts").join(told))

    @property
    def remark(self):
        """How far to trust it: its basis, what is not counted, its source."""
        notes = labels.lookup(f"assumptions.{self.name}")
        pieces = [f"*{labels.text('basis.' + self.basis.replace(' ', '_'))}*"]
        pieces += [notes] if notes else []
        link = re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", self.source)
        pieces += [labels.text("basis.source", source=link)] if self.source else []
        return " · ".join(pieces)

    @functools.cached_property
    def javascript(self):
        """Its expression in JavaScript, over an object ``v`` that holds every value by name."""
        return javascript(self.expr)


def takes(formula):
    """The names that a formula takes: its inputs, and the owners of rows that can fill them."""
    return {*formula.inputs(), *(s.partition(".")[0] for s in formula.sources.values())}


def taken(formula, given):
    """Those of the given inputs and rows that a formula takes."""
    names = takes(formula)
    return {n: v for n, v in given.items() if n in names}


class Largest:
    """The largest value of an input for which a formula is not negative, found by halving.

    Of a whole input it is searched upward from 1; of one with a bounded domain, over all of it.

    Parameters
    ----------
    result : Quantity
        What it is called
    axis : Quantity
        The input; the more of it, the smaller ``limit``
    limit : Formula
        What must not be negative, e.g. the memory to spare

    Examples
    --------
    >>> from onegpu import GPUS, MODELS
    >>> from onegpu.finetune import longest_sequence
    >>> longest_sequence(model=MODELS["Llama 2 7B"], gpu=GPUS["RTX 4090"], method="qlora-dq", micro_batch=1, recompute="full")
    29642.0
    """

    terms = ()

    def __init__(self, result, axis, limit):
        self.result, self.name, self.axis, self.limit = result, result.name, axis, limit

    def graph(self, given=()):
        """The formulas that it needs, in the order of evaluation."""
        return self.limit.graph(given)

    def inputs(self, given=()):
        """The limit's inputs without the one that is searched."""
        return {n: q for n, q in self.limit.inputs(given).items() if n != self.axis.name}

    @property
    def sources(self):
        """Where each input can come from, as in a formula."""
        return {n: s for n, s in self.limit.sources.items() if n != self.axis.name}

    @property
    def range(self):
        """Where the search begins and where it gives up."""
        return (0, MOST) if self.axis.integer else (float(self.axis.valid.inf), float(self.axis.valid.sup))

    def __call__(self, **given):
        """The value; 0 if nothing is possible.

        Raises
        ------
        ValueError
            For an unknown, missing or illegal input, or if the whole of a bounded domain would do.
        """
        if self.axis.name in given:
            raise self.axis.error(given[self.axis.name], labels.text("allowed.searched", formula=self.name))
        low, high = self.range
        values = self.limit.evaluate(**given, **{self.axis.name: 1})  # says what is wrong

        def spare(x):
            return self.limit.compute(values | {self.axis.name: x}, given)

        if not self.axis.integer and (end := spare(high))[self.limit.name] > 0:
            raise ValueError(labels.text(f"rule.{self.name}", **{n: plain(v) for n, v in end.items()}))
        if self.axis.integer:
            high = 1
            while high <= MOST and spare(high)[self.limit.name] >= 0:
                low, high = high, 2 * high
        while low < (middle := (low + high) // 2 if self.axis.integer else (low + high) / 2) < high:
            low, high = (middle, high) if spare(middle)[self.limit.name] >= 0 else (low, middle)
        return self.result.check(float(low if self.axis.integer else high))


#: Where the search for a whole number gives up.
MOST = 2**24


def docstring(formula):
    """The numpydoc text of a formula: equation, parameters with units, result, cases as a doctest."""
    def capital(text):
        return text[:1].upper() + text[1:]

    lines = [capital(formula.result.label) + labels.text("join.stop").strip(), "", ".. math:: " + formula.latex, "", "Parameters", "----------"]
    for name, q in formula.inputs().items():
        kind = "{" + ", ".join(map(repr, q.choices)) + "}" if q.choices else "float or array"
        said = [f"{capital(q.label)} [{q.unit or '-'}]", q.allowed, *([labels.text("document.default", value=repr(q.default))] if q.default is not None else [])]
        origin = labels.text("join.parts") + labels.text("document.origin", row=formula.sources[name]) if name in formula.sources else ""
        lines += [f"{name} : {kind}", f"    {labels.text('join.comma').join(said)}{origin}"]
    lines += ["", "Returns", "-------", f"{formula.name} : float or array", f"    {capital(formula.result.label)} [{formula.result.unit or '-'}]",
              "", "Raises", "------", "ValueError", "    If an input is missing, unknown or outside its domain.", "", "Notes", "-----", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", formula.remark)]
    plain = [c for c in formula.cases if all(isinstance(v, (int, float, str)) for v in c.inputs.values())]
    if plain:
        arguments = ", ".join(f"{k}={v!r}" for k, v in plain[0].inputs.items())
        lines += ["", "Examples", "--------", f">>> {formula.name}({arguments})", repr(formula(**plain[0].inputs))]
    return "\n".join(lines)


def search_order(axes, formulas):
    """In which order a search evaluates: what rules out whole values of an axis, then what rules out plans, then the rest.

    Parameters
    ----------
    axes : iterable of str
        Names of the inputs that are tried
    formulas : sequence of Formula
        What is wanted of each plan

    Returns
    -------
    dict
        ``alone``: axis -> names of the rules that need nothing else that varies; ``first``: names of the
        formulas that the rules need; ``then``: the others
    """
    graph = {f.name: f for root in formulas for f in root.graph()}
    rules = {n: r for root in formulas for n, r in root.all_rules().items()}
    needed = {q.name for r in rules.values() for q in r.arguments}
    for name in reversed(graph):
        if name in needed:
            needed |= {q.name for q in graph[name]._arguments}
    alone = {axis: [n for n, r in rules.items() if {q.name for q in r.arguments} & {*axes, *graph} == {axis}] for axis in axes}
    return {"alone": alone, "first": [n for n in graph if n in needed], "then": [n for n in graph if n not in needed]}


class Section:
    """Numbers the formulas of one section in the order in which it shows them."""

    def __init__(self, number):
        self.number, self.formulas = number, []

    def formula(self, name, symbol, unit, expr, *, valid=NONNEGATIVE, integer=False, choices=None, numbered=True, **fields):
        """Register the result and make the formula."""
        result = Quantity(name, symbol, unit, valid=valid, integer=integer, choices=choices)
        return self.add(Formula(result, expr, **fields), numbered)

    def bound(self, base, name, symbol, cases, numbered=False, rules=(), **inputs):
        """A formula of another section with a name of its own, whose inputs stand for others: see :meth:`Formula.bind`."""
        result = Quantity(name, symbol, base.result.unit, valid=base.result.valid, choices=base.result.choices)
        return self.add(base.bind(result, **inputs).replace(cases=cases, source="", rules=rules), numbered)

    def add(self, formula, numbered=True):
        """Give a formula the section's next number, if the section shows it as an equation."""
        self.formulas.append(formula)
        return self.equation(formula) if numbered else formula

    def equation(self, formula):
        """Give a formula the section's next number; a section may show late what other formulas use early."""
        formula.number = f"{self.number}.{sum(bool(f.number) for f in self.formulas) + 1}"
        return formula

