"""Every number in the prose is computed, or is listed with a reason; no digit of it can change unseen.

Prose is what people write and readers see: the Markdown of every notebook in every language (headings, tables and
mathematics with it), the words in the code cells' tables, README.md, references.md and the texts in
``lib/onegpu/labels``. ``prose.toml`` lists, for each part of each page, the numbers in it in their order:
``"112 GB = training_state(params=7e9)"`` is compared at the printed precision, ``"3 : reason"`` is a plain number that
is not computed. Every other word with a digit in it is a name (a card, a file, a piece of code), and is counted on each
page. A page under ``zh/`` is held to the same numbers by their value, in its own units: 70 亿 is 7B.

``python tests/test_prose.py`` prints what is not listed yet.
"""

import ast
import functools
import re
import tomllib
import unicodedata
from collections import Counter
from math import ceil, log10
from pathlib import Path

import nbformat
import pytest

from onegpu import (
    FACTS,
    GPUS,
    MODELS,
    NETWORKS,
    RECIPES,
    RUNS,
    calibrate,
    catalog,
    compute,
    coupling,
    evidence,
    finetune,
    measured,
    memory,
    planner,
    published,
    quantities,
    scaling,
    units,
)
from store_outputs import ROOT, notebooks

LISTED = tomllib.loads((Path(__file__).parent / "prose.toml").read_text("utf-8"))
SCOPE = {n: v for m in (quantities, catalog, units, finetune, memory, scaling, coupling, planner, compute) for n, v in vars(m).items() if not n.startswith("_")}
SCOPE |= {"FACTS": FACTS, "GPUS": GPUS, "MODELS": MODELS, "NETWORKS": NETWORKS, "RECIPES": RECIPES}


def whole_run(name):
    """The MFU that a published run implies."""
    run = RUNS[name]
    return scaling.implied_mfu(params=run.active_params, tokens=run.tokens, gpu_seconds=3600 * run.gpu_hours, gpu=GPUS[run.gpu])


#: The questions of section 05 whose answers its prose tells.
QUESTIONS = {
    "70B": dict(model=MODELS["Llama 2 70B"], gpu=GPUS["A100 80GB"], gpus=64, tokens=1e12, seq_len=4096, global_batch=2**22, network_bandwidth=25e9, kernel_efficiency=0.6),
    "405B": dict(model=MODELS["Llama 3.1 405B"], gpu=GPUS["H100 SXM"], gpus=16384, tokens=1e12, seq_len=8192, global_batch=2**24, network_bandwidth=50e9, kernel_efficiency=0.6, causal=True)}
plans = functools.cache(lambda name: planner.search(**QUESTIONS[name]))


def makers_ratio():
    """The time of Llama 3.1 405B's published plan over the fastest of the whole search."""
    theirs = dict(tensor_parallel=(8,), pipeline_parallel=(16,), virtual_stages=(8,), zero_stage=(2,), recompute=("none",), micro_batch=(1,))
    return planner.search(**QUESTIONS["405B"], axes=theirs).best["plan_time"] / plans("405B").fastest["plan_time"]


def dp_ratio(k):
    """Bytes of ZeRO-3 over those of plain data parallel, with k micro-batches."""
    sent = [coupling.data_parallel_bytes(params=1e9, data_parallel=64, zero_stage=z, accumulation_steps=k) for z in (3, 0)]
    return sent[0] / sent[1]


SOURCE_50, SOURCE_40 = (scaling.cluster_time(params=175e9, tokens=1e12, gpus=1024, gpu=GPUS["H100 SXM"], mfu=m) for m in (0.5, 0.4))
RUNS_405B = sorted((r.mfu_printed for r in RUNS.values() if r.name.startswith("Llama 3.1 405B, ") and r.scope == "step"), reverse=True)
RUN_HOURS = [r.gpu_hours for r in RUNS.values() if r.scope == "run" and r.gpu and r.gpu_hours and r.tokens]
RUNS_POWERS = log10(max(RUN_HOURS) / min(RUN_HOURS))
#: The two published plans of section 5.5, the efficiency at which the second gives its printed MFU, and steps that the compiler is asked about.
_COMMON = dict(kernel_efficiency=0.6, causal=True, network=NETWORKS["400 Gb/s a card"], micro_batch=1, pipeline_parallel=16)
LONG_405B = _COMMON | dict(model=MODELS["Llama 3.1 405B"], gpu=GPUS["H100 SXM"], seq_len=131072, accumulation_steps=16, data_parallel=8, tensor_parallel=8, context_parallel=16,
                           virtual_stages=8, zero_stage=2, gpus=16384, global_batch=2**24)
V3 = _COMMON | dict(model=MODELS["DeepSeek-V3"], gpu=GPUS["H800"], seq_len=4096, accumulation_steps=120, data_parallel=128, expert_parallel=64, zero_stage=1, schedule="dualpipe",
                    recompute="projections", grad_bytes=4, optimizer_bytes=4, routing_nodes=4, dispatch_bytes=1, gpus=2048, global_batch=15360 * 4096)
V3_EFFICIENCY = min((e / 100 for e in range(30, 70)), key=lambda e: abs(planner.plan_parts(**V3 | dict(kernel_efficiency=e))["card_mfu"] - RUNS["DeepSeek-V3 step, causal count"].mfu_printed))
ASKED = {name: evidence.ask(MODELS[name], recompute="full") for name in ("GPT-2 small",)}
_TWINS = ((m, m.name.replace(m.kind, "reserved")) for m in measured.readings("allocated", "active"))
CACHE = [measured.MEASURED[twin].measured_bytes / m.measured_bytes for m, twin in _TWINS if twin != m.name and twin in measured.MEASURED]
SCOPE |= {"ASKED": ASKED, "CACHE": CACHE, "ceil": ceil, "evidence": evidence, "LONG_405B": LONG_405B, "V3": V3, "V3_EFFICIENCY": V3_EFFICIENCY, "measured": measured, "published": published, "calibrate": calibrate}
#: Section 07's rows, the change between two of them, and the cases of the QLoRA paper.
TUNED = measured.FINETUNED
PAPER = dict(model=MODELS["LLaMA 33B"], gpu=GPUS["RTX 4090"], rank=64, targets="all", trainable_bytes=12, accumulate=True, recompute="full", seq_len=512, micro_batch=1, method="qlora-dq")
ON_24_GB = dict(model=MODELS["Mistral 7B"], gpu=GPUS["RTX 4090"], rank=32, targets="qv", lora_dropout=0.05, seq_len=512, micro_batch=2)


def change(name, old, new, what="measured_bytes"):
    """What differs between a row and the one whose name has ``new`` for ``old``."""
    return getattr(TUNED[name.replace(old, new)], what) - getattr(TUNED[name], what)


SCOPE |= {"TUNED": TUNED, "PAPER": PAPER, "ON_24_GB": ON_24_GB, "change": change}
SCOPE |= {"plans": plans, "RUNS": RUNS, "RUNS_405B": RUNS_405B, "RUNS_POWERS": RUNS_POWERS, "SOURCE_40": SOURCE_40, "SOURCE_50": SOURCE_50, "dp_ratio": dp_ratio, "makers_ratio": makers_ratio, "whole_run": whole_run}

# -- reading ---------------------------------------------------------------------------------------

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
DIGITS = ("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
DIGIT = re.compile(rf"[{''.join(DIGITS)}]")
WORDS = {w: 6 + i for i, w in enumerate("six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split())}
WORDS |= {w: 20 + 10 * i for i, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split())} | {"dozen": 12, "hundred": 100, "thousand": 1000}

#: A factor and a unit that may follow a number, by language: Latin ones must end there, Chinese ones need no space after them.
SCALES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "million": 1e6, "billion": 1e9, "trillion": 1e12}
SCALES_ZH = {"千": 1e3, "万": 1e4, "百万": 1e6, "千万": 1e7, "亿": 1e8, "十亿": 1e9, "百亿": 1e10, "千亿": 1e11, "万亿": 1e12}
UNITS = {"%": 0.01, "byte": 1, "bytes": 1, "TFLOP/s": 1e12, "FLOP/s": 1, "FLOP": 1, "kWh": 3.6e6, "W": 1, "ms": 1e-3, "second": 1, "seconds": 1, "minute": units.MINUTE, "minutes": units.MINUTE,
         "hour": units.HOUR, "hours": units.HOUR, "day": units.DAY, "days": units.DAY, "month": units.MONTH, "months": units.MONTH, "year": units.YEAR, "years": units.YEAR, "Gb/s": 1e9 / 8}
UNITS |= {f"{p}{i}B{rate}": (1024.0 if i else 1000.0) ** (k + 1) for k, p in enumerate("kMGTP") for i in ("", "i") for rate in ("", "/s")}
UNITS_ZH = {"字节": 1, "比特": 1 / 8, "倍": 1, "毫秒": 1e-3, "秒": 1, "分钟": units.MINUTE, "小时": units.HOUR, "天": units.DAY, "个月": units.MONTH, "年": units.YEAR}


def _one_of(latin, chinese=()):
    """A pattern for one of these words, the longest that is there."""
    longest = functools.partial(sorted, key=len, reverse=True)
    return rf"(?:(?:{'|'.join(map(re.escape, longest(latin)))})(?![A-Za-z0-9_/])" + "".join(f"|{w}" for w in longest(chinese)) + ")"


POWER = rf"⁻?[{DIGITS[1]}]+"
DURATION = re.compile(r"(\d+)\s?(?:years?|年)\s?(\d+)\s?(?:months?|个月)")
SPELT = re.compile(rf"\b(?i:({'|'.join(WORDS)})( thousand)?)\b")
NUMBER = re.compile(rf"(?<![A-Za-z0-9_.{DIGITS[1]}])(\d+(?:,\d{{3}})*(?:\.\d+)?)({POWER})?(?:\s?×\s?10({POWER}))?"
                    rf"(?:\s?({_one_of(SCALES, SCALES_ZH)}))?(?:\s?({_one_of(UNITS, UNITS_ZH)}))?", re.A)
NAMES = [*MODELS, *GPUS, *NETWORKS, *RECIPES, *LISTED["names"]]
NAME = "|".join(re.escape(n).replace(r"\ ", r"\s+") for n in sorted(NAMES, key=len, reverse=True) if DIGIT.search(n))
#: What a text is made of: code, link targets and tags; names; numbers; other words with a digit. Each digit is in one of them.
PIECE = re.compile(rf"(?P<verbatim>```.*?```|`[^`]*`|\]\([^)]*\)|https?://[^\s)>]+|</?[a-z][^>]*>)|(?P<name>(?<![A-Za-z0-9_])(?:{NAME})(?![A-Za-z0-9_]))"
                   rf"|(?P<number>{DURATION.pattern}|{SPELT.pattern}|{NUMBER.pattern})|(?P<other>[A-Za-z_][A-Za-z0-9_.]*?{DIGIT.pattern}[A-Za-z0-9_.]*|{DIGIT.pattern}+)", re.S | re.A)


def read(text):
    """The numbers of a text with their units, as written and in order, and its names: every other word that holds a digit."""
    numbers, names = [], []
    for piece in PIECE.finditer(text):
        kind, written = piece.lastgroup or "number", " ".join(piece[0].split())
        if piece["number"]:
            numbers.append(written)
        else:
            names += [w for w in re.split(r"[\s`,()<>\[\]，。；：、（）]+", written) if DIGIT.search(w)] if kind == "verbatim" else [written]
    return numbers, names


def numbers(text):
    """Each number with its unit, as written."""
    return read(text)[0]


def value(written):
    """What a written number means in base units, and half a unit of its last digit."""
    if duration := DURATION.fullmatch(written):
        return int(duration[1]) * units.YEAR + int(duration[2]) * units.MONTH, units.MONTH / 2
    if word := SPELT.fullmatch(written):
        step = 1000 if word[2] else 1
        return WORDS[word[1].lower()] * step, step / 2
    number, power, ten, scale, unit = NUMBER.fullmatch(written).groups()
    digits = number.replace(",", "")
    if unit == "年" and re.fullmatch("(19|20)..", digits):  # a date
        unit = None
    factor = (SCALES | SCALES_ZH).get(scale, 1) * (UNITS | UNITS_ZH).get(unit, 1) * (10.0 ** int(ten.translate(SUPERSCRIPTS)) if ten else 1)
    if power:
        return float(digits) ** int(power.translate(SUPERSCRIPTS)) * factor, 0
    return float(digits) * factor, 10.0 ** -len(digits.partition(".")[2]) * factor / 2


# -- what is read ------------------------------------------------------------------------------------

def spoken(source):
    """The texts in a code cell that have a number and a space: what its tables say. A row's name is not one."""
    tree = ast.parse(re.sub(r"^[!%].*$", "", source, flags=re.M))
    formats = {id(c) for node in ast.walk(tree) if isinstance(node, ast.FormattedValue) and node.format_spec for c in ast.walk(node.format_spec)}
    found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in formats]
    return "\n".join(t for t in found if DIGIT.search(t) and " " in t and t not in NAMES)


def label_texts(node, key=""):
    """Each text of a file of labels with its key."""
    if isinstance(node, str):
        yield key, node
    else:
        for k, v in node.items() if isinstance(node, dict) else enumerate(node):
            yield from label_texts(v, f"{key}.{k}" if key else str(k))


def texts():
    """Every text that is written by hand: page, part, text."""
    for path in notebooks():
        page = path.relative_to(ROOT).with_suffix("").as_posix()
        for cell in nbformat.read(path, 4).cells:
            yield page, cell.id, cell.source if cell.cell_type == "markdown" else spoken(cell.source)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("zh/*.md")]:
        yield path.relative_to(ROOT).with_suffix("").as_posix(), "text", path.read_text("utf-8")
    for path in sorted((ROOT / "lib" / "onegpu" / "labels").glob("*.toml")):
        for key, text in label_texts(tomllib.loads(path.read_text("utf-8"))):
            yield "labels" if path.stem == "en" else f"{path.stem}/labels", key, text


def listed(page, part):
    """The entries of a part: what is written, and its expression or None. A page in another language has those of the English one, or its own."""
    for entry in LISTED.get(page, {}).get(part, LISTED.get(page.partition("/")[2], {}).get(part, []) if translated(page) else []):
        written, sign, rest = re.split(r" (=|:) ", entry, maxsplit=1)
        yield written, rest if sign == "=" else None


def translated(page):
    """Whether a page is in another language than English."""
    return page.startswith("zh/")


def counted(page):
    """The names that a page is listed with; a page in another language has those of the English one, without its plurals, or its own."""
    entries = LISTED["count"].get(page, [])
    if translated(page) and page not in LISTED["count"]:
        entries = [PLURAL.sub(lambda m: f"{m[1]}-bit" if m[1] else m[2], e) for e in LISTED["count"].get(page.partition("/")[2], [])]
    return sum((Counter({name: int(n)}) for name, n in (entry.rsplit(" × ", 1) for entry in entries)), Counter())


#: A plural of a name, which Chinese does not have.
PLURAL = re.compile(r"^(?:(\d+) bits|([A-Z]\d+)s)(?= × )")


def compared(page, written):
    """What is compared of the numbers of a part: how they are written, in their order; in another language their values, but for spelt words."""
    return sorted(f"{value(w)[0]:.12g}" for w in written if DIGIT.search(w)) if translated(page) else written


def complaint(page, part, written):
    """What is wrong with the numbers of a part: nothing, or a text."""
    found, known = compared(page, written), compared(page, [w for w, _ in listed(page, part)])
    if found == known:
        return ""
    more, less = Counter(found) - Counter(known), Counter(known) - Counter(found)
    if not more and not less:
        return f"{page}, {part}: the numbers are listed in another order than they are written: {found}"
    return (f"{page}, {part}: written and not listed {list(more.elements())}, listed and not written {list(less.elements())}. A changed number is wrong; "
            f'a new one goes into tests/prose.toml, ["{page}"] {part}: "… = <expression>" or "… : <reason>"')


TEXTS = list(texts())
PAGES = list(dict.fromkeys(page for page, _, _ in TEXTS))
PARTS = [(p, c, t) for p, c, t in TEXTS if DIGIT.search(t) or SPELT.search(t) or list(listed(p, c))]
ENTRIES = [(p, c, w, e) for p, cs in LISTED.items() if p not in ("names", "count") for c in cs for w, e in listed(p, c) if e]


def found_names(page):
    """The names on a page, with how often each is there."""
    return Counter(name for p, _, text in PARTS if p == page for name in read(text)[1])


@functools.cache
def computed(expression):
    """The value of an entry's expression."""
    return eval(expression, dict(SCOPE))


def is_true(written, expression):
    """Whether the expression gives the written number at its printed precision, a half rounded up."""
    meant, half = value(written)
    over, little = computed(expression) - meant, 1e-9 * abs(meant)
    return -half - little <= over < half - little if half else abs(over) <= little


def changes(text):
    """The text with one digit changed into each other one: (which, the changed text)."""
    for at in DIGIT.finditer(text):
        for other in next(d for d in DIGITS if at[0] in d).replace(at[0], ""):
            yield f"{text[max(0, at.start() - 20):at.start()]}[{at[0]}→{other}]{text[at.end():at.end() + 10]}", text[:at.start()] + other + text[at.end():]


# -- the tests ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("page, part, text", PARTS, ids=[f"{p}:{c}" for p, c, _ in PARTS])
def test_every_number_is_listed(page, part, text):
    """No number is unlisted, none is listed in vain, each is in its place."""
    wrong = complaint(page, part, numbers(text))
    assert not wrong, wrong


@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_counted(page):
    """Each name with a digit stands on the page as often as prose.toml says."""
    found, known = found_names(page), counted(page)
    assert found == known, f"{page}: more than listed {dict(found - known)}, fewer than listed {dict(known - found)}. `python tests/test_prose.py` prints the new list for tests/prose.toml, [count]"


@pytest.mark.parametrize("page, part, written, expression", ENTRIES, ids=[f"{p}:{c}:{w}" for p, c, w, _ in ENTRIES])
def test_every_number_is_true(page, part, written, expression):
    """The expression gives the written number at its printed precision."""
    assert is_true(written, expression), f"{written} is written, {expression} = {computed(expression)}"


def test_nothing_is_listed_in_vain():
    """prose.toml names no page or part that does not exist."""
    assert {(p, c) for p, cs in LISTED.items() if p not in ("names", "count") for c in cs} <= {(p, c) for p, c, _ in TEXTS}
    assert set(LISTED["count"]) <= set(PAGES)


def test_every_digit_can_be_read():
    """No full-width digit, circled number or fraction sign: the checks below would not see it."""
    strange = [(p, c, s) for p, c, text in TEXTS for s in text if unicodedata.category(s) in ("Nd", "Nl", "No") and not DIGIT.match(s) or s == "％"]
    assert not strange, f"write these with 0 to 9: {strange}"


@pytest.mark.parametrize("page", PAGES)
def test_every_changed_digit_is_found(page):
    """Each digit of the page, changed into each other digit, changes what the tests above compare."""
    def seen(text):
        numbers, names = read(text)
        return compared(page, numbers), Counter(names)

    unseen = [(part, which) for p, part, text in PARTS if p == page for now in [seen(text)] for which, new in changes(text) if seen(new) == now]
    assert not unseen, f"{page}: {unseen}"


def test_every_changed_entry_is_untrue():
    """A computed number that is changed in the prose and in prose.toml alike is found by its expression."""
    unseen = [(which, e) for w, e in dict.fromkeys((w, e) for _, _, w, e in ENTRIES) for which, new in changes(w) if numbers(new) == [new] and is_true(new, e)]
    assert not unseen, unseen


CALLS = [(p, c, t, call) for p, c, t in TEXTS for call in re.findall(r"`(\w+\([^`]*=[^`]*\))`", t) if not p.endswith("labels") and "README" not in p]


@pytest.mark.parametrize("page, part, text, call", CALLS, ids=[f"{p}:{c}" for p, c, _, _ in CALLS])
def test_a_call_in_the_prose_gives_a_number_beside_it(page, part, text, call):
    """"Check it with `f(…)`" gives a number of the same part."""
    assert any(is_true(written, call) for written in numbers(text)), f"{call} = {computed(call)}"


@pytest.mark.parametrize("text, found, base", [
    ("It is 16 bytes.", "16 bytes", 16), ("14.9 GiB", "14.9 GiB", 14.9 * 2**30), ("10⁹ bytes", "10⁹ bytes", 1e9), ("3.14 × 10²³ FLOP", "3.14 × 10²³ FLOP", 3.14e23), ("2 × 10⁻⁶ s", "2 × 10⁻⁶", 2e-6),
    ("in 2 years 8 months", "2 years 8 months", 32 * units.MONTH), ("30.84 million hours", "30.84 million hours", 30.84e6 * 3600), ("Sixteen thousand cards", "Sixteen thousand", 16000),
    ("约112 GB的显存", "112 GB", 112e9), ("共有70亿个参数", "70亿", 7e9), ("1 万亿 token", "1 万亿", 1e12), ("要2年8个月", "2年8个月", 32 * units.MONTH), ("2 年 8 个月", "2 年 8 个月", 32 * units.MONTH),
    ("每参数16字节", "16字节", 16), ("占50%的", "50%", 0.5), ("5.4 万 小时", "5.4 万 小时", 5.4e4 * 3600), ("2024年", "2024年", 2024), ("快12倍", "12倍", 12), ("每30分钟", "30分钟", 1800), ("24 天", "24 天", 24 * 86400),
    ("$12h^2$是", "12", 12)])
def test_reading(text, found, base):
    """Both languages' numbers and units."""
    assert numbers(text)[0] == found and value(found)[0] == pytest.approx(base, rel=1e-12)


def test_another_language(monkeypatch):
    """A page under zh/ is held to the numbers of the English one, by value, in any order."""
    monkeypatch.setitem(LISTED, "page", {"part": ["7B : size", "112 GB : state", "16,384 : cards", "2 years 8 months : time", "50 % : given", "twelve : times", "194 billion : tokens"]})
    text = "70 亿个参数要112 GB，一张卡以50%的利用率要训练2年8个月，16,384张卡快十二倍，1940亿个词元。"
    assert not complaint("zh/page", "part", numbers(text))
    unseen = [which for which, new in changes(text) if not complaint("zh/page", "part", numbers(new))]
    assert not unseen, unseen


def missing():
    """What prose.toml lacks, as lines to put into it."""
    for page, part, text in PARTS:
        if complaint(page, part, numbers(text)):
            known, entries = {}, []
            for entry in LISTED.get(page, {}).get(part, []):
                known.setdefault(re.split(r" [=:] ", entry, maxsplit=1)[0], []).append(entry)
            for written in numbers(text):
                entries.append(known[written].pop(0) if known.get(written) else f"{written} : ?")
            yield f'["{page}"]\n"{part}" = ' + "[" + ", ".join(f'"{e}"' for e in entries) + "]"
    for page in PAGES:
        if found_names(page) != counted(page):
            yield f'[count]\n"{page}" = ' + "[" + ", ".join(f"'{n} × {k}'" if '"' in n else f'"{n} × {k}"' for n, k in sorted(found_names(page).items())) + "]"


if __name__ == "__main__":
    print(*missing(), sep="\n")
