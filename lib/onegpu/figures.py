"""Figures and tables, drawn from the formulas to scale.

A figure is SVG with text in it, in the page's own colours (``currentColor``), light or dark. Its
title says its point, its alt text says what it shows.
"""

import atexit
import datetime
import functools
import html
import io
import os
import re
import tempfile
import unicodedata

from . import compute, coupling, labels, memory, planner, units
from .catalog import GPUS, MODELS, RUNS
from .formula import REGISTRY

#: Safe for colour-blind readers (Okabe and Ito), the same order as the calculator's bars.
COLOURS = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#f0e442", "#888888"]
INK = "#010203"  # stands for the page's text colour until the SVG is written
WIDE = "onegpu wide"  # a font of no shapes
START = datetime.date(2026, 12, 1)  # "started today": fixed, so that stored outputs do not drift


class Figure:
    """A drawing as SVG, with its alt text."""

    def __init__(self, svg, alt):
        self.svg, self.alt = svg, alt

    def __repr__(self):
        return self.alt

    def _repr_mimebundle_(self, **kwargs):
        return {"image/svg+xml": self.svg, "text/plain": self.alt}


def draw(paint, title, alt, height=3.0, width=5.0):
    """Run ``paint(axes)`` and return the SVG as a :class:`Figure`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    style = {"svg.fonttype": "none", "svg.hashsalt": "onegpu", "font.size": 12, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK,
             "xtick.color": INK, "ytick.color": INK, "figure.titlesize": 13, "axes.spines.top": False,
             "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 11, "font.family": ["DejaVu Sans", *wide_font()]}
    with rc_context(style):
        canvas = Canvas(figsize=(width, height), layout="constrained")
        axes = canvas.add_subplot()
        paint(axes)
        canvas.suptitle("\n".join(wrapped(title, 44)), x=0.01, ha="left")
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg"):].replace(INK, "currentColor").replace(f", '{WIDE}'", "").replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans', sans-serif")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    prefix = "f" + str(abs(hash_text(title)))[:6] + "-"
    svg = re.sub(r'(\bid="|#)([\w.-]+)(?=["\)])', lambda m: m[0] if m[1] == "#" and re.fullmatch(r"[0-9a-f]{6}", m[2]) else m[1] + prefix + m[2], svg)
    svg = svg.replace("<svg ", f'<svg class="onegpu-figure" role="img" aria-label="{html.escape(alt)}" ', 1)
    style = "<style>.onegpu-figure{color:#222}@media(prefers-color-scheme:dark){.onegpu-figure{color:#ddd}}</style>"
    return Figure(svg.replace(">", f">{style}", 1), alt)


def logarithmic(axes):
    """Both axes in powers of ten, with numbers: exponents would be too small to read."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda x, _: units.human(x, ""))
        axis.set_minor_formatter(lambda x, _: "")


def legend_below(axes, columns=1):
    """The legend under the axes, where nothing is drawn over it."""
    axes.get_figure().legend(loc="outside lower left", ncols=columns)


def name(axes, text, point, dx, dy):
    """A name so many points right of and above what it names; from far it points there."""
    line = {"arrowstyle": "-", "color": INK, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4, "relpos": (dx < 0, 0.5)} if abs(dy) > 10 else None
    axes.annotate(text, point, (dx, dy), textcoords="offset points", ha="left" if dx > 0 else "right", va="center", color=INK, fontsize=11, arrowprops=line)


def is_wide(character):
    """Whether a character takes the room of two, as Chinese ones and their punctuation do."""
    return unicodedata.east_asian_width(character) in "WF"


def wrapped(text, width):
    """The lines of a text that are at most ``width`` characters long, where a wide one counts twice; those may break anywhere but before punctuation."""
    parts = re.findall(r"(?:[^\W\d_A-Za-z]|\S[^\s\u3000-\uffef]*)[，。：；、？！）]*\s*", text)
    lines = [""]
    for part in parts:
        if lines[-1] and sum(1 + is_wide(c) for c in (lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


@functools.cache
def wide_font():
    """A font that knows the room which the labels' wide characters take; it draws nothing, since readers' own fonts do.

    Matplotlib would warn of each character that its font lacks, and take a wrong width for it.
    """
    characters = sorted({c for n in labels.languages() for c in str(labels.load(n)) if is_wide(c)})
    if not characters:
        return []
    from fontTools.fontBuilder import FontBuilder
    from fontTools.ttLib.tables._g_l_y_f import Glyph
    from matplotlib import font_manager

    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder([".notdef", "wide"])
    font.setupCharacterMap({ord(c): "wide" for c in characters})
    font.setupGlyf({".notdef": Glyph(), "wide": Glyph()})
    font.setupHorizontalMetrics({".notdef": (500, 0), "wide": (1000, 0)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": WIDE, "styleName": "Regular"})
    font.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    font.setupPost()
    with tempfile.NamedTemporaryFile(suffix=".ttf", delete=False) as file:
        font.save(file)
    atexit.register(os.unlink, file.name)
    font_manager.fontManager.addfont(file.name)
    return [WIDE]


def hash_text(text):
    """A number from a text, the same in every process."""
    import zlib
    return zlib.crc32(text.encode())


def set_number(text):
    """A number as it is printed: with a minus sign, zero with none, and percent as the language writes it; any other text as it is.

    >>> [set_number(t) for t in ("-1.7%", "+0.4%", "-0.0%", "-0.05", "--flag")]
    ['−1.7 %', '+0.4 %', '0.0 %', '−0.05', '--flag']
    """
    text = re.sub(r"^[+−](?=[0.]+($|[^\d.]))", "", re.sub(r"^-(?=\d)", "−", text))
    return re.sub(r"^([+−]?[\d.,–]+)%$", lambda m: labels.text("unit.percent", number=m[1]), text)


def told(cell):
    """A table's cell in the current language; of a link, its text."""
    link = re.fullmatch(r"\[(.+)\]\((.+)\)", cell)
    return f"[{labels.told(link[1])}]({link[2]})" if link else labels.told(set_number(cell))


class Table:
    """Rows of text under a header, as Markdown and as plain text, in the current language."""

    def __init__(self, header, rows):
        self.header, self.rows = list(map(labels.told, header)), [[told(str(cell)) for cell in row] for row in rows]

    def _repr_markdown_(self):
        sides = ["---:" if i and all(re.match(rf"[+−$]?\d|(–|{labels.told('none')})$", row[i]) for row in self.rows) else "---" for i in range(len(self.header))]
        lines = [self.header, sides, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

    def __repr__(self):
        return "\n".join(" | ".join(line) for line in [self.header, *self.rows])


def word(key, **fields):
    """A text of this module: ``figure.<key>``."""
    return labels.text(f"figure.{key}", **fields)


def joined(texts, how="list"):
    """Texts one after another, as the language does it."""
    return labels.text(f"join.{how}").join(texts)


def symbols():
    """The table of symbols, from the registry of quantities."""
    rows = [(f"${q.tex}$", f"`{q.name}`", q.label, units.shown(q.unit) or "–", q.allowed) for q in REGISTRY.values()]
    return Table(word("symbols").split("|"), rows)


def state_against_card(*, gpu=GPUS["H100 SXM"], sizes=(7e9, 13e9, 70e9, 175e9)):
    """Bars of the training state of some sizes, to scale, against one card."""
    parts = [memory.inference_weights, memory.gradients, memory.master_weights, memory.optimizer_moments]
    names = [units.human(n, "") for n in sizes]

    def paint(axes):
        left = [0.0] * len(sizes)
        for part, colour in zip(parts, ("#0072b2", "#e69f00", "#56b4e9", "#009e73"), strict=True):
            values = [part(params=n) / units.GB for n in sizes]
            axes.barh(names, values, left=left, color=colour, label=part.result.label)
            left = [a + b for a, b in zip(left, values, strict=True)]
        axes.axvline(gpu.memory_bytes / units.GB, color=INK, linestyle="--", label=word("one_card", gpu=gpu.name))
        for y, value in enumerate(left):
            axes.text(value + 20, y, f"{value:,.0f} GB", va="center", color=INK)
        axes.invert_yaxis()
        axes.set_xlim(0, max(left) * 1.18)
        axes.set_xlabel(word("state_axis"))
        axes.set_ylabel(word("size_axis"))
        axes.legend(loc="upper right")

    total = [memory.training_state(params=n) for n in sizes]
    alt = word("state_alt", gpu=gpu.name, sizes=joined(f"{n} {units.human(t, 'B')}" for n, t in zip(names, total, strict=True)))
    return draw(paint, word("state_title"), alt, height=3.6)


def memory_over_time(*, model=MODELS["Llama 2 7B"], gpu=GPUS["H100 SXM"], seq_len=4096, micro_batch=4, **choices):
    """Memory through one training step: activations rise and fall while gradients grow."""
    v = memory.training_memory.evaluate(model=model, seq_len=seq_len, micro_batch=micro_batch, **choices)
    kept = v["gradients"] * v["accumulate"]
    late = 0.98  # when the logits come
    time = [0, late, 1, 1.02, 2, 2.02, 3]  # start, before the logits, end of forward, logits gone, end of backward, step, end
    live = v["layer_working_set"]
    rows = {"inference_weights": [v["inference_weights"]] * len(time), "master_weights": [v["master_weights"]] * len(time), "optimizer_moments": [v["optimizer_moments"]] * len(time),
            "gradients": [kept, kept, kept, kept, v["gradients"], v["gradients"], v["gradients"]],
            "activations": [0, late * v["activations"], v["activations"], v["activations"] + live, live, 0, 0], "logits": [0, 0, v["logits"], 0, 0, 0, 0]}
    colours = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7")

    def paint(axes):
        axes.stackplot(time, *([x / units.GB for x in row] for row in rows.values()), colors=colours, labels=[REGISTRY[n].label for n in rows])
        axes.axhline(gpu.usable_bytes / units.GB, color=INK, linestyle="--", label=word("usable", gpu=gpu.name))
        axes.set_xticks([0.5, 1.5, 2.5], [word("forward"), word("backward"), word("step")])
        axes.set_ylabel(word("memory_axis"))
        axes.set_xlabel(word("time_axis"))
        axes.set_xlim(0, 3)
        axes.set_ylim(0, v["training_memory"] / units.GB * 1.05)
        legend_below(axes, 2)

    moments = [(f.result.label, units.human(v[f.name], "B")) for f in memory.training_memory.uses]
    alt = word("over_time_alt", model=model.name, batch=micro_batch, moments=joined(f"{a} {b}" for a, b in moments))
    return draw(paint, word("over_time_title", model=model.name), alt, height=4)


def finish_years(*, gpu=GPUS["H100 SXM"], sizes=(7e9, 13e9, 70e9, 175e9), tokens=1e12, mfu=0.5):
    """A calendar of when one card, started on a fixed day, would finish."""
    years = [START.year + (START.timetuple().tm_yday - 1) / 365.25 + compute.training_time(params=n, tokens=tokens, peak_flops=gpu.peak_flops, mfu=mfu) / units.YEAR for n in sizes]
    names = [units.human(n, "") for n in sizes]
    begin = START.year + START.timetuple().tm_yday / 365.25

    def paint(axes):
        axes.barh(names, [y - begin for y in years], left=begin, color="#0072b2")
        for i, year in enumerate(years):
            axes.text(year + 0.7, i, str(int(year)), va="center", color=INK)
        axes.invert_yaxis()
        axes.set_xlim(begin - 1, max(years) + 8)
        axes.set_xlabel(word("year_axis"))
        axes.set_ylabel(word("size_axis"))

    alt = word("finish_alt", gpu=gpu.name, date=START.isoformat(), ends=joined(f"{n} {int(y)}" for n, y in zip(names, years, strict=True)))
    return draw(paint, word("finish_title", gpu=gpu.name, year=int(max(years))), alt, height=2.6)


def published_runs(*, mfu=0.4):
    """Printed GPU-hours of whole runs against 6·N·D at one MFU, on logarithmic axes."""
    runs = [r for r in RUNS.values() if r.scope == "run" and r.gpu and r.gpu_hours and r.tokens]
    asked = [compute.training_time(params=r.active_params, tokens=r.tokens, gpu=GPUS[r.gpu], mfu=mfu) / units.HOUR for r in runs]
    again = [(x, r.gpu_hours) for r, x in zip(runs, asked, strict=True) if r.recompute in ("full", "yes")]
    named = {"nanoGPT GPT-2 small": (10, -20), "Llama 2 7B": (26, -16), "GPT-3 175B": (-14, 20), "Llama 3.1 405B": (-8, 8), "Llama 3.1 8B": (-40, 11), "BLOOM 176B": (12, -12)}

    def paint(axes):
        ends = [min(asked) / 3, max(asked) * 3]
        axes.plot(ends, ends, color=INK, linestyle="--", label=word("line", mfu=units.human(mfu, "share")))
        axes.plot([float(compute.RECOMPUTED) * x for x, _ in again], [h for _, h in again], "o", color="#d55e00", markerfacecolor="none", markersize=6, zorder=3, label=word("hardware"))
        axes.plot(asked, [r.gpu_hours for r in runs], "o", color="#0072b2", markersize=5)
        for run, x in zip(runs, asked, strict=True):
            if run.name in named:
                name(axes, run.name, (x, run.gpu_hours), *named[run.name])
        logarithmic(axes)
        axes.set_xlabel(word("asked_axis", mfu=units.human(mfu, "share")))
        axes.set_ylabel(word("printed_axis"))
        axes.legend(loc="lower right")

    shares = [mfu * x / r.gpu_hours for x, r in zip(asked, runs, strict=True)]
    inside = sum(mfu / 2 <= s <= mfu * 2 for s in shares)
    return draw(paint, word("runs_title"), word("runs_alt", count=len(runs), inside=inside, again=len(again), mfu=units.human(mfu, "share")), height=3.8)


def sharding(*, model=MODELS["Llama 2 70B"], gpu=GPUS["A100 80GB"], seq_len=4096, global_batch=2**20):
    """Memory on each of 64 GPUs under five plans, beside the bytes that each GPU sends in a step."""
    plans = [("DP 64", dict(data_parallel=64)), ("ZeRO-1", dict(data_parallel=64, zero_stage=1)), ("ZeRO-2", dict(data_parallel=64, zero_stage=2)), ("ZeRO-3", dict(data_parallel=64, zero_stage=3)),
             ("TP 8, ZeRO-1", dict(data_parallel=8, tensor_parallel=8, zero_stage=1)), ("TP 8, PP 4, ZeRO-1", dict(data_parallel=2, tensor_parallel=8, pipeline_parallel=4, zero_stage=1))]
    rows = []
    for name, plan in plans:
        k = global_batch // (seq_len * plan["data_parallel"])
        shape = dict(model=model, seq_len=seq_len, micro_batch=1, accumulation_steps=k)
        v = coupling.plan_memory.evaluate(**shape, **plan)
        cut = {n: x for n, x in plan.items() if n in ("tensor_parallel", "pipeline_parallel")}
        wire = dict(link_bandwidth=1, link_fraction=1)  # at one byte a second, seconds are bytes
        sent = coupling.data_parallel_bytes(model=model, accumulation_steps=k, **plan)
        sent += coupling.pipeline_time(**shape, **cut, **wire, data_parallel=plan["data_parallel"], network_bandwidth=1, network_fraction=1)
        inside = coupling.tensor_parallel_time(**shape, **cut, **wire)
        rows.append((name, v["sharded_state"], v["plan_memory"] - v["sharded_state"], sent, inside))

    def paint(axes):
        names = [r[0] for r in rows]
        places = range(len(rows))
        axes.barh([p - 0.2 for p in places], [r[1] / units.GB for r in rows], height=0.38, color="#0072b2", label=word("state_part"))
        axes.barh([p - 0.2 for p in places], [r[2] / units.GB for r in rows], left=[r[1] / units.GB for r in rows], height=0.38, color="#d55e00", label=word("activation_part"))
        axes.barh([p + 0.2 for p in places], [r[3] / units.GB for r in rows], height=0.3, color="#009e73", label=word("network_part"))
        axes.barh([p + 0.2 for p in places], [r[4] / units.GB for r in rows], left=[r[3] / units.GB for r in rows], height=0.3, color="#cc79a7", label=word("link_part"))
        axes.axvline(gpu.usable_bytes / units.GB, color=INK, linestyle="--", label=word("usable", gpu=gpu.name))
        axes.set_yticks(list(places), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.25 * max(max(r[1] + r[2], r[3] + r[4]) for r in rows) / units.GB)
        axes.set_xlabel(word("sharding_axis"))
        legend_below(axes)

    alt = word("sharding_alt", model=model.name, rows=joined((f"{n}{labels.text('join.is')}{joined(units.human(x, 'B') for x in (a + b, c + d))}" for n, a, b, c, d in rows), "parts"))
    return draw(paint, word("sharding_title"), alt, height=5.4)


def roofline(*, cards=("A100 80GB", "H100 SXM", "H20"), d_in=4096, d_out=11008):
    """FLOP/s within reach of a product, over the tokens of a micro-batch."""
    import numpy as np

    tokens = np.unique(np.round(np.logspace(0, 4.2, 60)))

    def paint(axes):
        for name, colour in zip(cards, ("#0072b2", "#d55e00", "#009e73"), strict=True):
            intensity = coupling.arithmetic_intensity(matmul_tokens=tokens, d_in=d_in, d_out=d_out)
            axes.plot(tokens, coupling.attainable_flops(intensity=intensity, gpu=GPUS[name]) / 1e12, color=colour, label=name)
            ridge = coupling.ridge_tokens(gpu=GPUS[name], d_in=d_in, d_out=d_out)
            axes.plot([ridge], [GPUS[name].peak_flops / 1e12], "o", color=colour)
        axes.axvline(4096, color=INK, linestyle=":", label=word("one_sequence"))
        logarithmic(axes)
        axes.set_xlabel(word("tokens_axis"))
        axes.set_ylabel(word("flops_axis"))
        legend_below(axes, 2)

    ridges = joined(f"{n} {coupling.ridge_tokens(gpu=GPUS[n], d_in=d_in, d_out=d_out):.0f}" for n in cards)
    return draw(paint, word("roofline_title"), word("roofline_alt", ridges=ridges), height=3.4)


def decision_tree():
    """The planner's ladder as a drawing: at each rung two questions, and where a yes leads."""
    rungs = list(planner.LADDER)

    def paint(axes):
        axes.set_axis_off()
        axes.set_xlim(0, 10)
        axes.set_ylim(-0.6, len(rungs) - 0.4)
        box = {"boxstyle": "round,pad=0.4", "facecolor": "none", "edgecolor": INK}
        for i, kind in enumerate(reversed(rungs)):
            last = i == 0
            if not last:
                axes.text(2.4, i, word(f"ask_{kind}"), ha="center", va="center", bbox=box, color=INK)
                axes.annotate("", (6.4, i), (5.25, i), arrowprops={"arrowstyle": "->", "color": INK})
                axes.text(5.8, i + 0.1, word("yes"), ha="center", color=INK)
                axes.annotate("", (2.4, i - 0.64), (2.4, i - 0.36), arrowprops={"arrowstyle": "->", "color": INK})
                axes.text(2.6, i - 0.54, word("no"), color=INK)
            axes.text(2.4 if last else 8.1, i, word(f"use_{kind}"), ha="center", va="center", color=INK, bbox=box | {"edgecolor": "#0072b2", "linewidth": 2})

    line = labels.text("join.line")
    ask, use = ({k: word(f"{verb}_{k}").replace("\n", line) for k in ks} for verb, ks in (("ask", rungs[:-1]), ("use", rungs)))
    alt = line.join([word("tree_alt"), *(word("tree_line", ask=ask[k], use=use[k]) for k in rungs[:-1]), use[rungs[-1]] + labels.text("join.stop").strip()])
    return draw(paint, word("tree_title"), alt, height=5)


def elementwise(steps):
    """What a compiler counts besides matrix products, over the width of the model."""
    from .evidence import elementwise_flops_per_token

    found = {m: (s.elementwise_flops / s.flops, elementwise_flops_per_token(s) * s.tokens / s.flops) for m, s in steps.items()}
    named = {"GPT-2 small": (4, -48), "Llama 2 7B": (-20, -44), "GPT-3 175B": (-14, -30), "PaLM 540B": (-14, 4)}

    def paint(axes):
        axes.plot([m.d_model for m in found], [100 * law for _, law in found.values()], "_", color="#d55e00", markersize=14, label=word("law"))
        axes.plot([m.d_model for m in found], [100 * share for share, _ in found.values()], "o", color="#0072b2", markersize=5, label=word("compiler"))
        for m, (share, _) in found.items():
            if m.name in named:
                name(axes, m.name, (m.d_model, 100 * share), *named[m.name])
        logarithmic(axes)
        axes.set_xlabel(word("width_axis"))
        axes.set_ylabel(word("rest_axis"))
        axes.legend(loc="lower left")

    shares = [share for share, _ in found.values()]
    return draw(paint, word("elementwise_title"), word("elementwise_alt", count=len(found), low=units.human(min(shares), "share"), high=units.human(max(shares), "share")), height=3.8)


def measured():
    """Predicted peaks of memory over measured ones."""
    from .measured import MEASURED

    kinds = {"allocated": ("#0072b2", "o"), "active": ("#0072b2", "o"), "reserved": ("#d55e00", "x"), "device": ("#009e73", "s")}
    rows = list(MEASURED.values())

    def paint(axes):
        ends = [0, 1.05 * max(m.measured_bytes for m in rows) / units.GIB]
        axes.plot(ends, ends, color=INK, linestyle="--", label=word("equal"))
        axes.fill_between(ends, [0.85 * x for x in ends], [1.15 * x for x in ends], color="#888888", alpha=0.2, linewidth=0, label=word("band"))
        for kind, (colour, marker) in kinds.items():
            group = [m for m in rows if m.kind == kind]
            axes.plot([m.measured_bytes / units.GIB for m in group], [m.predicted / units.GIB for m in group], marker, color=colour, markersize=5,
                      label=None if kind == "active" else word(f"kind_{kind}"))
        axes.set_xlabel(word("measured_axis"))
        axes.set_ylabel(word("predicted_axis"))
        axes.legend(loc="upper left")

    inside = sum(abs(m.predicted / m.measured_bytes - 1) <= 0.15 for m in rows)
    return draw(paint, word("measured_title"), word("measured_alt", count=len(rows), inside=inside), height=4.2)


def finetuned():
    """Errors of the predicted peaks of fine-tuning, over the measured peaks."""
    from .measured import FINETUNED

    rows = [m for m in FINETUNED.values() if not m.contradicts]
    kinds = {"full": ("#009e73", "s"), "lora": ("#0072b2", "o"), "qlora": ("#d55e00", "x")}

    def paint(axes):
        axes.axhline(0, color=INK, linestyle="--")
        for kind, (colour, marker) in kinds.items():
            group = [m for m in rows if m.inputs["method"].removesuffix("-dq") == kind]
            axes.plot([m.measured_bytes / units.GIB for m in group], [100 * m.error for m in group], marker, color=colour, markersize=5, label=re.split("[,（]", labels.text(f"choice.method.{kind}"))[0])
        axes.set_xscale("log")
        axes.set_xticks([4, 8, 16, 32, 64], ["4", "8", "16", "32", "64"])
        axes.minorticks_off()
        axes.set_ylim(-2.5, 2.5)
        axes.set_xlabel(word("measured_axis"))
        axes.set_ylabel(word("error_axis"))
        axes.legend(loc="upper right")

    return draw(paint, word("finetuned_title"), word("finetuned_alt", count=len(rows), worst=set_number(f"{max(abs(m.error) for m in rows):.1%}")), height=3.4)
