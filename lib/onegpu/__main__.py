"""The formulas on the command line: ``python -m onegpu fit --model "Llama 2 7B" --gpu "H100 SXM"``.

Options are the inputs of the formulas, typed as on the pages: ``--tokens 1.5T``, ``--memory-bytes "80 GiB"``. What is not
given and has no default starts as the book's calculators do, and is marked.
"""

import argparse
import difflib
import json
import sys

from . import catalog, labels, planner, units
from .compute import training_flops
from .formula import Formula, takes
from .memory import fits, headroom, training_memory
from .scaling import cluster_time, training_cost, training_energy

CATALOGS = {"model": catalog.MODELS, "gpu": catalog.GPUS, "network": catalog.NETWORKS, "recipe": catalog.RECIPES}
#: What each command computes.
COMMANDS = {"fit": [training_memory, headroom, fits], "time": [training_flops, cluster_time, training_cost, training_energy],
            "plan": [planner.plan_headroom, planner.plan_time, planner.plan_step_mfu]}
#: How many plans are printed.
BEST = 5


def inputs(command):
    """The inputs of a command's formulas by name."""
    return {n: q for formula in COMMANDS[command] for n, q in formula.inputs().items()}


def language():
    """The option that all commands share, and that is read before the rest: the help too is in the language."""
    one = argparse.ArgumentParser(add_help=False)
    one.add_argument("--language", choices=labels.languages(), default="en", help=labels.text("command.language"))
    return one


def parser():
    """The command line: a command for each list of formulas, an option for each input."""
    top = argparse.ArgumentParser(prog="python -m onegpu", description=labels.text("command.about"))
    commands = top.add_subparsers(dest="command", required=True)
    for command, formulas in COMMANDS.items():
        one = commands.add_parser(command, parents=[language()], help=labels.text(f"command.{command}"), description=labels.text(f"command.{command}"))
        for owner in sorted(set().union(*map(takes, formulas)) & set(Formula.OWNERS)):
            one.add_argument(f"--{owner}", metavar="NAME", help=labels.text("command.row", owner=labels.text(f"calculator.pick.{owner}"), example=next(iter(CATALOGS[owner]))))
        one.add_argument("--config", metavar="FILE", help=labels.text("command.config"))
        one.add_argument("--json", action="store_true", help=labels.text("command.json"))
        for name, q in inputs(command).items():
            one.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar=units.shown(q.unit).upper() or "N", help=f"{q.label}: {q.allowed}".replace("%", "%%"))
    return top


def read(q, text):
    """A typed value of an input: a choice by its name, a number with its unit."""
    if not q.choices:
        return units.parse(text, q.unit)
    return next((c for c in q.choices if str(c).lower() == text.lower()), text)


def row(owner, name):
    """A row of a catalogue by its name.

    Raises
    ------
    ValueError
        If there is none.
    """
    if name not in CATALOGS[owner]:
        near = difflib.get_close_matches(name, CATALOGS[owner], 5) or CATALOGS[owner]
        raise ValueError(labels.text("error.must_be", name=owner, value=name, allowed=labels.text("allowed.one_of", choices=labels.text("join.list").join(near))))
    return CATALOGS[owner][name]


def given(options):
    """The rows and the inputs of a command line, and the names of those that start as in the book."""
    known = inputs(options.command)
    rows = {o: row(o, getattr(options, o)) for o in CATALOGS if getattr(options, o, None)}
    if options.config:
        rows["model"] = catalog.Transformer.from_config(options.config)
    typed = {n: read(q, getattr(options, n)) for n, q in known.items() if getattr(options, n) is not None}
    filled = {n for f in COMMANDS[options.command] for n in f.sources} | {*(planner.AXES if options.command == "plan" else ())}  # by a row, or by the search
    assumed = {n: q.start for n, q in known.items() if n not in typed and n not in filled and q.default is None}
    return rows, typed | assumed, set(assumed)


def compute(options):
    """What a command prints: (label, value) by row, and the same for machines."""
    rows, values, assumed = given(options)
    known = inputs(options.command)
    lines = [(labels.text(f"calculator.pick.{o}"), labels.told(r.name)) for o, r in rows.items()]
    lines += [(q.label, q.human(q.check(values[n])) + (labels.text("command.assumed") if n in assumed else "")) for n, q in known.items() if n in values]
    data = {"rows": {o: r.name for o, r in rows.items()}, "inputs": values, "assumed": sorted(assumed)}
    if options.command != "plan":
        found = {f.name: f(**{n: v for n, v in (rows | values).items() if n in takes(f)}) for f in COMMANDS[options.command]}
        lines += [(f.result.label, f.result.human(found[f.name])) for f in COMMANDS[options.command]]
        told = {f.name: f.result.choices[int(found[f.name])] if f.result.choices else found[f.name] for f in COMMANDS[options.command]}
        return lines, data | {"results": told}
    axes = {n: (values.pop(n),) if n in values else v for n, v in planner.AXES.items()}
    plans = planner.search(axes=axes, **rows, **values)
    lines.append((labels.text("calculator.plans", found=plans.fitting, count=plans.count) if plans.best else labels.text("calculator.none", count=plans.count), ""))
    for plan in plans.ranked[:BEST]:
        values = (f.result.human(plan[f.name]) for f in (planner.plan_time, planner.card_memory, planner.card_mfu))
        cut = (f"{n} {plan[n]}" for n in ("data_parallel", *planner.AXES) if plan[n] != planner.AXES.get(n, (1,))[0])
        lines.append(tuple(map(labels.text("join.list").join, (values, cut))))
    return lines, data | {"results": {"fitting": plans.fitting, "count": plans.count, "refused": plans.refused, "plans": plans.ranked[:BEST]}}


def main(arguments=None):
    """Run one command; the exit status."""
    labels.set_language(language().parse_known_args(arguments)[0].language)
    options = parser().parse_args(arguments)
    try:
        lines, data = compute(options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        for label, value in lines:
            print(label + labels.text("join.line" if label[-1] in "?？" else "join.is") + value if value else label)
    return 0


if __name__ == "__main__":
    sys.exit(main())
