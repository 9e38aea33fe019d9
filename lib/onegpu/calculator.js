// The calculator's front end: one plain script for Jupyter, Colab and the static page.
// It knows no formula. A specification names inputs, formulas and outputs; the formulas'
// JavaScript is made from the library's SymPy expressions.
var onegpu = (() => {
  "use strict";

  // -- numbers as people read them: the same tables and rules as units.py ----------------------

  const SI = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"], SHORT = ["", "k", "M", "B", "T", "Q"];
  const SCALED = ["", "share", "B", "s", "B/s", "FLOP/s", "FLOP", "W", "J", "$", "$/s", "GPU·s"];  // units that human and entry write in their own way
  const { entries, fromEntries, keys } = Object, YEAR = 365.25 * 86400, MONTH = YEAR / 12;
  const python = x => x === Infinity ? "inf" : x === -Infinity ? "-inf" : Number.isNaN(x) ? "nan" : x;
  const plain = v => fromEntries(entries(v).map(([n, x]) => [n, typeof x === "number" && !Number.isInteger(x) ? +x.toPrecision(6) : x]));  // as in formula.py
  const fill = (text, fields) => text.replace(/\{(\w+)\}/g, (whole, key) => key in fields ? python(fields[key]) : whole);

  function significant(x, digits = 4) {
    if (x === 0) return "0";
    let [mantissa, power] = x.toPrecision(digits).split("e");
    if (power !== undefined) {
      const sign = mantissa[0] === "-" ? "-" : "", n = mantissa.replace(/[-.]/g, ""), at = +power + 1;
      mantissa = sign + (at <= 0 ? "0." + "0".repeat(-at) + n : n.length > at ? n.slice(0, at) + "." + n.slice(at) : n.padEnd(at, "0"));
    }
    return mantissa.includes(".") ? mantissa.replace(/0+$/, "").replace(/\.$/, "") : mantissa;
  }

  function scaled(x, base, prefixes, digits) {
    let power = x === 0 ? 0 : Math.max(0, Math.min(prefixes.length - 1, Math.floor(Math.log10(Math.abs(x)) / Math.log10(base) + 1e-9)));
    let text = significant(x / base ** power, digits);
    if (Math.abs(+text) >= base && power < prefixes.length - 1) text = significant(x / base ** ++power, digits);
    return [text, prefixes[power]];
  }

  const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
  const binary = (x, digits) => { const [n, p] = scaled(x, 1024, SI.slice(0, 6), digits); return p ? `${n} ${p.toUpperCase()}iB` : `${n} B`; };
  const prefixed = (x, unit, digits) => { const [n, p] = scaled(x, 1000, SI, digits); return `${n} ${p}${unit}`; };
  const count = (words, unit, number) => fill(words.unit.count, { number, unit: words.unit[unit][number === "1" ? 0 : 1] });

  function duration(s, words) {
    if (s >= 100 * YEAR) return count(words, "year", significant(s / YEAR));
    const months = Math.floor(s / MONTH + 0.5);
    if (months >= 12) {
      const rest = months % 12, years = count(words, "year", String((months - rest) / 12));
      return rest ? years + words.unit.join + count(words, "month", String(rest)) : years;
    }
    for (const [name, size] of [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]])
      if (s >= size * (size >= 3600 ? 1 : 2)) return count(words, name, significant(s / size));
    return s >= 1 ? count(words, "second", significant(s)) : `${significant(s * 1000, 3)} ms`;
  }

  function scientific(x, unit) {
    if (Math.abs(x) < 1e15) return prefixed(x, unit, 4);
    let [mantissa, power] = x.toExponential(2).split("e");
    const raised = String(+power).replace(/./g, c => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]);
    return `${significant(+mantissa, 3)} × 10${raised} ${unit}`;
  }

  const unitOf = (unit, words) => words.unit.name[unit] ?? unit, told = (row, words) => words.told[row] ?? row;  // in the page's language

  function human(x, unit, words, digits = 4) {
    if (x < 0) return "−" + human(-x, unit, words, digits).replace("(", "(−");
    if (unit === "s") return duration(x, words);
    if (unit === "share") return fill(words.unit.percent, { number: significant(100 * x, digits) });
    if (unit === "B") {
      const [n, p] = scaled(x, 1000, SI.slice(0, 6), digits), other = binary(x, digits);
      return `${n} ${p}B` + (other.endsWith("iB") ? ` (${other})` : "");
    }
    if (unit === "FLOP") return scientific(x, unit);
    if (["B/s", "FLOP/s", "W"].includes(unit)) return prefixed(x, unit, digits);
    if (unit === "J") return prefixed(x / 3.6e3, "Wh", digits);
    if (unit === "$") return "$" + (x >= 1e6 ? scaled(x, 1000, SHORT, digits).join("") : significant(x, digits));
    if (unit === "$/s") return `$${significant(x * 3600, digits)}/h`;
    if (unit === "GPU·s") return scaled(x / 3600, 1000, SHORT, digits).join("") + " GPU·h";
    if (unit === "") return Math.abs(x) >= 1e6 ? scaled(x, 1000, SHORT, digits).join("") : significant(x, digits);
    return `${x >= 1e6 ? scaled(x, 1000, SHORT, digits).join("") : significant(x, digits)} ${unitOf(unit, words)}`;
  }

  // What stands in the box beside a slider: exact to six digits, and in one unit only.
  function entry(x, unit, words) {
    if (typeof x !== "number") return x;
    if (unit === "B") return binary(x, 6);
    if (unit === "s") return x >= YEAR ? `${significant(x / YEAR, 6)} ${words.unit.year[1]}` : x >= 86400 ? `${significant(x / 86400, 6)} ${words.unit.day[1]}` : `${significant(x, 6)} s`;
    if (!SCALED.includes(unit)) return Number.isInteger(x) && x < 1e15 ? String(x) : significant(x, 6);
    return human(x, unit, words, 6);
  }

  // A typed number in base units, or the text itself if it is none.
  function parse(text, unit, suffixes) {
    const clean = text.trim().replace(/^\$/, "").replace(/^−/, "-"), match = clean.match(/^([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*)$/i);
    if (!match) return text.trim();
    const table = suffixes[unit] || {}, suffix = match[2].trim();
    const key = suffix === "" ? "" : suffix in table ? suffix : keys(table).find(k => k.toLowerCase() === suffix.toLowerCase());
    const x = Number(match[1].replace(/,/g, ""));
    return suffix === "" || suffix === unit ? x : key === undefined ? text.trim() : x * table[key];
  }

  // -- evaluation ------------------------------------------------------------------------------

  const codeOf = (q, x) => q.choices ? q.choices.findIndex(c => c.value === x) : x;  // a choice is its position
  const error = (words, name, value, allowed) => fill(words.error.must_be, { name, value, allowed });

  function check(q, name, x, words) {
    if (q.choices) return q.choices.some(c => c.value === x) ? null : error(words, name, x, q.allowed);
    if (typeof x !== "number") return error(words, name, x, /^[-+]?(nan|inf(inity)?)$/i.test(x) ? words.allowed.finite : words.allowed.number);
    if (!Number.isFinite(x)) return error(words, name, x, words.allowed.finite);
    const low = q.low !== undefined && (q.lowOpen ? x <= q.low : x < q.low), high = q.high !== undefined && (q.highOpen ? x >= q.high : x > q.high);
    return low || high || (q.integer && x !== Math.floor(x)) ? error(words, name, x, q.allowed) : null;
  }

  function valueOf(spec, lib, state, name) {
    if (name in state) return state[name];
    const { source, start } = spec.inputs[name];
    if (!source) return start;
    const [owner, attribute] = source.split(".");
    return rowOf(lib, state, owner)[attribute];
  }

  // -- the reader's own model ------------------------------------------------------------------

  const own = state => state.shape && state.shape.name === state.model;
  const rowOf = (lib, state, owner) => owner === "model" && own(state) ? counted(lib, state.shape) : lib.rows[owner]?.[state[owner]];
  const counts = new WeakMap();

  // A shape with what its formulas count, as a row of the catalogue.
  function counted(lib, shape) {
    if (!counts.has(shape)) {
      const v = {}, row = { ...shape };
      for (const n of lib.fields) {
        const choices = lib.quantities[n].choices;
        row[n] = shape[n] ?? (choices ? choices[0].value : 0);
        v[n] = codeOf(lib.quantities[n], row[n]);
      }
      for (const n of lib.shape) v[n] = lib.formulas[n](v);
      const broken = lib.legal.find(n => !lib.rules[n](v));
      if (broken) throw new RangeError(fill(lib.words.rule[broken], v));
      for (const attribute in lib.counts) row[attribute] = v[lib.counts[attribute]];
      counts.set(shape, row);
    }
    return counts.get(shape);
  }

  // The fields of a shape from the text of a config.json: the table of families of configs.py, read in the same way.
  function readConfig(text, lib, file = "text") {
    const words = lib.words.config, refuse = (key, fields) => { throw new RangeError(fill(words[key], fields)); };
    const put = x => typeof x === "string" ? x : JSON.stringify(x), has = (object, key) => Object.hasOwn(object, key);
    let config;
    try { config = JSON.parse(text.replace(/^\uFEFF/, "")); } catch { config = null; }
    if (config === null || typeof config !== "object" || Array.isArray(config)) refuse("object", { name: file });
    const get = key => has(config, key) && config[key] !== null ? config[key] : undefined, family = get("model_type");
    if (typeof family !== "string" || !has(lib.families, family)) {
      const allowed = fill(lib.words.allowed.one_of, { choices: keys(lib.families).sort().join(", ") });
      family === undefined ? refuse("missing", { name: "model_type", allowed }) : refuse("must_be", { name: "model_type", value: put(family), allowed });
    }
    const found = {}, v = {}, given = x => typeof x === "function" ? x(v) : x;
    const whole = (field, value) => {
      const x = given(value);
      if (typeof value === "function" && !Number.isInteger(x)) refuse("derived", { name: field, value: significant(x), rule: value.rule });
      return x;
    };
    const read = (field, key) => {
      const { names, least, absent, null: none, wanted, most } = key, name = names.find(n => get(n) !== undefined) || names[0], flag = least === null;
      const allowed = flag ? words.flag : fill(words.at_least, { least });
      let x = get(name);
      if (x === undefined) {
        const start = names.some(n => has(config, n)) ? none : absent;
        if (start === undefined) refuse("missing", { name, allowed });
        x = whole(field, start);
      } else if (flag ? typeof x !== "boolean" : typeof x !== "number" || x % 1 !== 0 || x < least) refuse("must_be", { name, value: put(x), allowed });
      if (wanted !== undefined && Number(x) !== Number(given(wanted))) refuse("only", { name, value: put(x), wanted: put(flag ? Boolean(given(wanted)) : given(wanted)) });
      if (most !== undefined && x > given(most)) refuse("must_be", { name, value: put(x), allowed: fill(words.at_most, { most: given(most) }) });
      return x;
    };
    for (const [field, value] of entries(lib.families[family])) {
      found[field] = value !== null && typeof value === "object" ? read(field, value) : whole(field, value);
      v[field] = Number(found[field]);
    }
    const shape = fromEntries(entries(found).filter(([field]) => field[0] !== "_")), name = get("_name_or_path");
    shape.name = name && typeof name === "string" ? name : family;
    counted(lib, shape);
    return shape;
  }

  // Every value by name, and what is wrong by name of the input.
  function evaluate(spec, lib, state, searches = true) {
    const v = {}, errors = {};
    for (const name in spec.inputs) {
      const q = lib.quantities[name], x = valueOf(spec, lib, state, name), wrong = check(q, name, x, lib.words);
      if (wrong) errors[name] = wrong;
      v[name] = codeOf(q, x);
    }
    for (const [owner, one, other] of spec.equal || []) {
      const row = rowOf(lib, state, owner);
      if (row && row[one] !== row[other]) errors[owner] = fill(lib.words.calculator.parted, { name: owner, value: state[owner] });
    }
    if (keys(errors).length) return { values: {}, errors };
    for (const { axis } of Object.values(spec.largest || {})) v[axis] ??= 1;
    for (const name of spec.formulas) v[name] = lib.formulas[name](v);
    const broken = (spec.rules || []).find(name => !lib.rules[name](v));
    if (broken) {
      const message = lib.words.rule[broken];
      const shown = fromEntries(entries(plain(v)).map(([n, x]) => [n, lib.quantities[n].choices ? lib.quantities[n].choices[x]?.value : x]));
      return { values: v, errors: { [owned(spec, message.match(/\{(\w+)\}/)[1])]: fill(message, shown) } };
    }
    for (const name in searches && spec.largest) {
      const found = largest(spec.largest[name], lib, v);
      if (typeof found === "number") v[name] = found;
      else errors[name] = fill(lib.words.rule[name], plain(found));
    }
    for (const name of spec.outputs) {
      const q = lib.quantities[name], wrong = q.choices || !(name in v) ? null : check(q, name, v[name], lib.words);
      if (wrong) errors[name] = wrong;
    }
    return { values: v, errors };
  }

  // Where an input is refused: at its own control, or at the row that it comes from.
  const owned = (spec, name) => spec.inputs[name]?.quiet ? spec.inputs[name].source.split(".")[0] : name;

  // The largest value of an input for which a formula is not negative, as Largest in formula.py; or the values at the end of the domain, if all of it would do.
  function largest({ axis, limit, range, whole, formulas }, lib, v) {
    const w = { ...v }, spare = x => { w[axis] = x; for (const name of formulas) w[name] = lib.formulas[name](w); return w[limit]; };
    let [low, high] = range;
    if (!whole && spare(high) > 0) return w;
    if (whole) for (high = 1; high <= range[1] && spare(high) >= 0; high *= 2) low = high;
    for (;;) {
      const middle = whole ? Math.floor((low + high) / 2) : (low + high) / 2;
      if (middle <= low || middle >= high) return whole ? low : high;
      if (spare(middle) >= 0) low = middle; else high = middle;
    }
  }

  // Every combination of the axes: those that break no rule and stay within the limit, in order.
  // A generator, so that a page can pause it: it yields now and then, and returns what it found.
  function* searching(spec, lib, state) {
    const { axes, limit, order, goal } = spec.search, names = keys(axes), { values, errors } = evaluate({ ...spec, rules: [], outputs: [] }, lib, state);
    const found = { plans: [], refused: {}, count: 0 };
    if (keys(errors).length) return found;
    const tried = names.map(n => axes[n]), v = { ...values }, refuse = (n, k) => { if (k) found.refused[n] = (found.refused[n] || 0) + k; };
    const size = () => tried.reduce((n, t) => n * t.length, 1), { alone, first, then } = spec.order;
    found.count = size();
    names.forEach((n, i) => {  // values of an axis that no plan can have
      for (const rule of alone[n]) {
        const before = size();
        tried[i] = tried[i].filter(x => lib.rules[rule]({ ...values, [n]: codeOf(lib.quantities[n], x) }));
        refuse(rule, before - size());
      }
    });
    const codes = names.map((n, i) => tried[i].map(x => codeOf(lib.quantities[n], x))), at = names.map(() => 0);
    search: for (let n = 1; size(); n++) {
      if (n % 256 === 0) yield;
      names.forEach((n, i) => { v[n] = codes[i][at[i]]; });
      for (const name of first) v[name] = lib.formulas[name](v);
      let broken = spec.rules.find(name => !lib.rules[name](v));
      if (!broken) {
        for (const name of then) v[name] = lib.formulas[name](v);
        broken = v[limit] >= 0 ? null : "memory";
      }
      if (broken) refuse(broken, 1);
      else found.plans.push({ ...fromEntries(names.map((n, i) => [n, tried[i][at[i]]])), ...fromEntries(spec.search.show.map(n => [n, v[n]])), [order]: v[order], ...(goal && { [goal]: v[goal] }) });
      let i = names.length - 1;
      while (++at[i] === codes[i].length) { at[i] = 0; if (--i < 0) break search; }
    }
    found.plans.sort((a, b) => a[order] - b[order]);
    return found;
  }

  // What to change first: each input doubled alone, and the best plan's goal over what it was, the greatest help first.
  function* doubling(spec, lib, state) {
    const { changes, goal } = spec.search, { values } = evaluate({ ...spec, rules: [], outputs: [] }, lib, state), ratios = [];
    const best = found => found.plans.length ? found.plans[0][goal] : Infinity, now = best(yield* searching(spec, lib, state));
    for (const n of changes) {
      const after = best(yield* searching(spec, lib, { ...state, [n]: 2 * values[n] }));
      ratios.push([n, now < Infinity ? after / now : after < now ? 0 : Infinity]);
    }
    return ratios.sort((a, b) => a[1] - b[1]);
  }

  // All of a generator at once, or a few milliseconds at a time, between frames and events, until it is done or another job takes its place.
  const drain = job => { for (;;) { const { done, value } = job.next(); if (done) return value; } };
  const search = (...given) => drain(searching(...given)), whatFirst = (...given) => drain(doubling(...given)), blocker = (...given) => drain(blocking(...given));

  const waiting = [];  // one queue for all calculators of a page: together they take no more of a frame than one
  let channel;
  function slowly(job, then = () => {}, current = () => true) {
    if (!channel) { channel = new MessageChannel(); channel.port1.onmessage = turn; }  // a timer would wait between turns
    if (waiting.push({ job, then, current }) === 1) channel.port2.postMessage(0);
  }

  // Once a reader has the node in view: a page that opens does not work for what may never be read.
  function seen(node, then) {
    const watch = new IntersectionObserver(all => { if (all.some(e => e.isIntersecting)) { watch.disconnect(); then(); } }, { rootMargin: "50%" });
    watch.observe(node);
  }

  function turn() {
    for (const start = performance.now(); waiting.length && performance.now() - start < 5;) {
      const { job, then, current } = waiting[0], { done, value } = current() ? job.next() : { done: true };
      if (!done) continue;
      if (current()) then(value);
      waiting.shift();
    }
    if (waiting.length) channel.port2.postMessage(0);
  }

  // Where an MFU stands among the published runs nearest in size, as judged in calibrate.py.
  function judged({ mfu, size, runs, count }, lib, v) {
    const words = lib.words.calculator, near = runs.map(([n, x]) => [Math.abs(Math.log(n / v[size])), x]).sort((a, b) => a[0] - b[0]).slice(0, count), below = near.filter(([, x]) => x < v[mfu]).length;
    return fill(words.judged, { mfu: human(v[mfu], "share", lib.words), third: words.third[Math.min(2, Math.floor(3 * below / near.length))], below, count: near.length });
  }

  const shown = spec => [...new Set([...spec.outputs.map(n => spec.largest?.[n]?.limit || n), ...(spec.stack ? [...(spec.stack.capacity ? [spec.stack.capacity] : []), ...spec.stack.onTop, ...Object.values(spec.stack.bars).flat()] : [])])];
  const alternatives = (spec, lib, state, name) => {
    if (name in spec.pickers) return spec.pickers[name].filter(row => row !== state[name]);
    const q = lib.quantities[name], now = valueOf(spec, lib, state, name);
    if (q.choices) return q.choices.map(c => c.value).filter(c => c !== now);
    return [0, 0.25, 0.5, 0.75, 1].map(p => at(q.slider, q, Math.round(p * q.slider.steps))).filter(x => x !== now);
  };

  // Whether any other value of a control changes anything shown.
  function matters(spec, lib, state, name, names = shown(spec)) {
    const now = evaluate(spec, lib, state, false).values;  // a search's limit stands for it
    const changed = other => { const { values, errors } = evaluate(spec, lib, changeOf(spec, state, name, other), false); return keys(errors).length > 0 || names.some(n => values[n] !== now[n]); };
    return alternatives(spec, lib, state, name).some(changed);
  }

  // The choice that keeps a control from mattering, if one does.
  function* blocking(spec, lib, state, name) {
    for (const other of keys(spec.inputs)) {
      if (other === name || !lib.quantities[other].choices) continue;
      for (const value of alternatives(spec, lib, state, other)) {
        const next = { ...state, [other]: value };
        if (keys(evaluate(spec, lib, next, false).errors).length === 0 && matters(spec, lib, next, name)) return other;
        yield;
      }
    }
    return null;
  }

  // The controls that cannot matter now, each with its blocker.
  function* idling(spec, lib, state, names) {
    const idle = {};
    for (const name of names) {
      if (!matters(spec, lib, state, name)) idle[name] = yield* blocking(spec, lib, state, name);
      yield;
    }
    return idle;
  }

  // A new state; another row of a catalogue takes back what was typed over the old one.
  function changeOf(spec, state, name, value) {
    const next = { ...state, [name]: value };
    if (name in spec.pickers) for (const n in spec.inputs) if ((spec.inputs[n].source || "").startsWith(name + ".")) delete next[n];
    return next;
  }

  // -- sliders ---------------------------------------------------------------------------------

  function at({ low, high, log, steps, whole }, q, position) {
    const x = log ? low * (high / low) ** (position / steps) : low + (high - low) * position / steps;
    return q.integer || whole ? Math.round(x) : position <= 0 ? low : position >= steps ? high : Number(x.toPrecision(3));
  }

  const positionOf = ({ low, high, log, steps }, x) => typeof x !== "number" ? 0 : Math.round(steps * Math.min(1, Math.max(0, log ? Math.log(x / low) / Math.log(high / low) : (x - low) / (high - low))));

  // -- the view --------------------------------------------------------------------------------

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of entries(attributes)) value === false || value === undefined ? 0 : node.setAttribute(key, value === true ? "" : value);
    node.append(...children);
    return node;
  };
  let ids = 0;

  // `changed` hears of each new state and of the one before, or of none after a reset; `site` is there if other calculators share the scenario.
  function mount(root, spec, lib, state, changed = () => {}, site) {
    const words = lib.words.calculator, id = `onegpu-${Math.random().toString(36).slice(2, 8)}-${++ids}`;
    const label = name => name in spec.pickers ? words.pick[name] : lib.quantities[name].label;
    const show = (name, x) => { const q = lib.quantities[name]; return name in spec.pickers ? told(x, lib.words) : q.choices ? q.choices[x].label : human(x, q.unit, lib.words); };
    const between = lib.words.join, is = text => text + (/[?？]$/.test(text) ? between.line : between.is), pair = (name, text) => `${name} ${text}`.replace("） ", "）");
    const valueNow = name => valueOf(spec, lib, state, name);
    const move = (next, name) => { const before = state; state = next; update(name); changed(state, before); };
    const set = (name, value) => move(changeOf(spec, state, name, value), name);
    const rows = {}, printed = full(spec, { ...spec.start });
    const reset = make("button", { type: "button" }, words.reset);

    function control(name) {
      const field = `${id}-${name}`, q = lib.quantities[name], row = { parts: [] };
      const common = { "aria-describedby": `${field}-note`, "data-name": name, "data-lm-suppress-shortcuts": "true" };
      if (name in spec.pickers || q.choices) {
        const choices = () => name in spec.pickers ? [...new Set([...spec.pickers[name], ...(name === "model" && state.shape ? [state.shape.name] : [])])].map(r => [r, told(r, lib.words)]) : q.choices.map(c => [c.value, c.label]);
        let options = [];
        const select = make("select", { id: field, ...common });
        select.addEventListener("change", () => { refused = null; set(name, options[select.value][0]); });
        row.parts = [select];
        row.write = x => {
          const next = choices();
          if (String(next) !== String(options)) select.replaceChildren(...(options = next).map(([, text], i) => make("option", { value: i }, text)));
          select.value = options.findIndex(([value]) => value === x);
        };
      } else {
        const range = make("input", { type: "range", min: 0, max: q.slider.steps, step: 1, "aria-label": q.label, ...common });
        const box = make("input", { type: "text", id: field, autocomplete: "off", spellcheck: "false", ...common });
        let last = 0, was, bad, typed;
        range.addEventListener("input", () => {
          const now = valueNow(name), position = +range.value;
          let x = at(q.slider, q, position);
          if (x === now && position !== last) x = Math.min(q.slider.high, Math.max(q.slider.low, x + Math.sign(position - last)));  // whole numbers: each step moves
          last = position;
          typed = undefined;
          set(name, x);
        });
        box.addEventListener("change", () => { typed = box.value; bad = undefined; set(name, parse(box.value, q.unit, lib.suffixes)); });
        row.parts = [range, box];
        row.write = (x, wrong, moving) => {
          if (x === was && wrong === bad) return;  // most rows, at most steps
          was = x;
          bad = wrong;
          if (!moving) range.value = last = positionOf(q.slider, x);
          if (!wrong) typed = undefined;
          const text = entry(x, q.unit, lib.words);
          range.setAttribute("aria-valuetext", text);
          box.value = typed ?? text;
        };
      }
      row.note = make("small", { id: `${field}-note`, class: "onegpu-note" });
      const unit = q && !q.choices && !SCALED.includes(q.unit) ? ` [${unitOf(q.unit, lib.words)}]` : "";
      row.node = make("div", { class: `onegpu-row${row.parts.length > 1 ? "" : " onegpu-choice"}` }, make("label", { for: field }, label(name) + unit), ...row.parts, row.note);
      if (name === "model") row.node.append(paste(`${field}-note`));
      rows[name] = row;
      return row.node;
    }

    // A config.json, pasted, dropped or opened: it stays in the browser.
    function paste(note) {
      const area = make("textarea", { rows: 3, spellcheck: "false", autocomplete: "off", "aria-label": words.own, "aria-describedby": note, placeholder: words.paste });
      const file = make("input", { type: "file", accept: ".json,application/json", "aria-label": words.open, "aria-describedby": note });
      area.addEventListener("input", () => take(area.value, "text"));
      file.addEventListener("change", async () => { if (file.files[0]) { area.value = await file.files[0].text(); take(area.value, file.files[0].name); } });
      root.addEventListener("dragover", event => event.preventDefault());
      root.addEventListener("drop", async event => {
        event.preventDefault();
        const dropped = event.dataTransfer.files[0];
        area.value = dropped ? await dropped.text() : event.dataTransfer.getData("text");
        area.closest("details").open = true;
        take(area.value, dropped ? dropped.name : "text");
      });
      reset.addEventListener("click", () => { area.value = ""; });
      return make("details", { class: "onegpu-own" }, make("summary", {}, words.own), area, file);
    }

    function take(text, name) {
      refused = null;
      let shape;
      if (text.trim()) try { shape = readConfig(text, lib, name); } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        refused = error.message;
      }
      shape ? move(changeOf(spec, { ...state, shape }, "model", shape.name)) : update();
    }

    const first = spec.show, rest = keys(spec.inputs).filter(n => !first.includes(n) && !spec.inputs[n].quiet);
    const controls = make("div", { class: "onegpu-controls" }, ...first.map(control));
    if (rest.length) controls.append(make("details", {}, make("summary", {}, words.more), ...rest.map(control)));

    const cells = fromEntries(spec.outputs.map(name => [name, make("output", { "data-name": name })]));
    const table = make("table", {}, make("caption", { class: "onegpu-hidden" }, words.results), make("tbody", {}, ...spec.outputs.map(name => make("tr", {}, make("th", { scope: "row" }, label(name)), make("td", {}, cells[name])))));
    const other = make("p", { class: "onegpu-moment" }), judgement = make("p", { class: "onegpu-moment" }), mine = make("p", { class: "onegpu-moment" }), use = make("button", { type: "button" }, words.calibrate || "");
    use.addEventListener("click", () => announce(fromEntries(entries(spec.calibrate).map(([n, from]) => [n, { value: root.onegpu.values[from], at: where() }]))) || (said.textContent = words.in_use));
    const live = make("p", { class: "onegpu-hidden", "aria-live": "polite" }), stack = make("div", { class: "onegpu-stack" }), curve = make("div", { class: "onegpu-curve" });
    const list = make("div", { class: "onegpu-plans" }), advice = make("div");
    reset.addEventListener("click", () => { refused = null; state = printed; update(); changed(state); });
    const text = make("textarea", { class: "onegpu-copied", readonly: true, spellcheck: "false", "aria-label": words.text, hidden: true }), said = make("span", { role: "status" });
    const copying = (word, write) => {
      const button = make("button", { type: "button" }, word);
      button.addEventListener("click", () => {
        text.hidden = false;
        text.value = write();
        text.rows = Math.min(14, text.value.split("\n").length + 1);
        text.select();
        said.textContent = "";
        navigator.clipboard?.writeText(text.value).then(() => { said.textContent = words.copied; }, () => {});
      });
      return button;
    };
    const copies = make("p", { class: "onegpu-copies" }, ...(site ? [copying(words.copy_link, site.link)] : []), ...(spec.python ? [copying(words.copy_python, () => pythonCode(spec, lib, state))] : []), said);
    root.replaceChildren(make("section", { class: "onegpu", "aria-label": spec.title },
      make("p", { class: "onegpu-title" }, spec.title, reset), make("div", { class: "onegpu-grid" }, controls, make("div", { class: "onegpu-results" }, table, other, judgement, ...(spec.calibrate ? [use] : []), mine, stack, curve)), list, advice, copies, text, live));
    let speak, think, jobs = 0, refused = null;

    // Measured values for every calculator, or null to do without them: an event, so that other views of a notebook hear it too.
    const announce = detail => void root.dispatchEvent(new CustomEvent("onegpu:calibration", { bubbles: true, detail }));

    // What a calibration depends on, as it is here.
    function where() {
      const found = {};
      for (const n of lib.range) if (n in spec.pickers || n in spec.inputs) found[n] = valueNow(n);
      return found;
    }

    // The inputs that do not hold what the book printed: a value from another page should not pass for the example's.
    function differing() {
      const names = [...keys(spec.pickers), ...keys(spec.inputs)].filter(n => (n in state || n in printed) && valueNow(n) !== valueOf(spec, lib, printed, n));
      return names.length ? fill(words.differs, { names: names.slice(0, 6).map(label).join(between.list) + (names.length > 6 ? "…" : "") }) : "";
    }

    // The inputs that hold a measured value, the outputs that rest on them, and how far from the measurement they are used.
    function ownRun(values) {
      const held = entries(state.calibration || {}).filter(([n, { value }]) => state[n] === value), before = { ...state };
      for (const [n] of held) n in spec.start ? before[n] = spec.start[n] : delete before[n];
      const without = held.length ? evaluate(spec, lib, before).values : values, resting = spec.outputs.filter(n => values[n] !== without[n]);
      const exact = (n, x) => n in spec.pickers ? show(n, x) : entry(x, lib.quantities[n].unit, lib.words), here = where(), far = new Set(held.flatMap(([, { at }]) => keys(at).filter(n => n in here && (n in spec.pickers ? here[n] !== at[n] : Math.max(here[n] / at[n], at[n] / here[n]) > lib.factor))
        .map(n => fill(words.measured_at, { name: label(n), value: exact(n, here[n]), at: exact(n, at[n]) }))));
      const drop = make("button", { type: "button" }, words.defaults), text = fill(words.own_run, { values: held.map(([n, { value }]) => pair(label(n), show(n, value))).join(between.list) });
      drop.addEventListener("click", () => announce(null));
      mine.replaceChildren(...(held.length ? [text, between.line, ...(far.size ? [make("b", {}, fill(words.outside, { far: [...far].join(between.list) })), between.line] : []), drop] : []));
      for (const n of resting) cells[n].append(" †");
    }

    // The plans that fit, fastest first, and why the others were refused.
    function plans(found, failed) {
      const { axes, show: columns, order } = spec.search, names = [order, ...keys(axes), ...columns];
      const same = p => !failed && keys(axes).every(n => p[n] === valueNow(n));
      const cell = (n, x) => axes[n] ? (lib.quantities[n].choices ? lib.quantities[n].choices.find(c => c.value === x).label : String(x)) : show(n, x);
      const row = p => {
        const button = make("button", { type: "button", "aria-pressed": String(same(p)) }, same(p) ? words.used : words.use);
        button.addEventListener("click", () => move({ ...state, ...fromEntries(keys(axes).map(n => [n, p[n]])) }));
        return make("tr", {}, make("td", {}, button), ...names.map(n => make("td", {}, cell(n, p[n]))));
      };
      const reasons = entries(found.refused).map(([n, k]) => `${n === "memory" ? words.memory : words.reasons[n]} ${grouped(k)}`).join(between.parts);
      const title = found.plans.length ? fill(words.plans, { found: grouped(found.plans.length), count: grouped(found.count) }) : fill(words.none, { count: grouped(found.count) });
      return [make("p", { class: "onegpu-moment" }, title), make("div", { class: "onegpu-scroll", tabindex: 0 }, make("table", {}, make("thead", {}, make("tr", {}, make("td"), ...names.map(n => make("th", { scope: "col" }, label(n))))), make("tbody", {}, ...found.plans.slice(0, 6).map(row)))),
        ...(reasons ? [make("p", { class: "onegpu-moment" }, fill(words.refused, { reasons }))] : [])];
    }

    // What helps, when the reader has stopped for a moment: one search for each change.
    function advise(found) {
      const change = ratio => ratio === 0 ? words.makes_fit : human(ratio - 1, "share", lib.words, 2).replace(/^(?=[1-9])/, "+");
      const helps = found.filter(([, ratio]) => ratio < Infinity).map(([n, ratio]) => pair(label(n), change(ratio))).join(between.list);
      advice.replaceChildren(make("p", { class: "onegpu-moment" }, helps ? fill(words.first, { helps }) : words.first_none));
    }

    function update(by) {
      const { values, errors } = refused ? { values: {}, errors: { model: refused } } : evaluate(spec, lib, state), failed = keys(errors).length > 0;
      for (const name in rows) {
        const row = rows[name], x = valueNow(name);
        row.write(x, name in errors, name === by && document.activeElement === row.parts[0]);
        row.parts.forEach(p => { p.disabled = Boolean(row.idle) && !failed; p.setAttribute("aria-invalid", name in errors); });
        row.note.textContent = errors[name] || (failed ? "" : row.idle) || "";
        row.node.classList.toggle("onegpu-wrong", name in errors);
      }
      for (const name of spec.outputs) {
        cells[name].textContent = errors[name] || (failed ? "–" : show(name, values[name]));
        cells[name].classList.toggle("onegpu-bad", name in errors || !failed && (lib.quantities[name].choices || [])[values[name]]?.value === "no");
      }
      other.textContent = differing();
      failed ? mine.replaceChildren() : ownRun(values);
      judgement.textContent = spec.judge && !failed ? judged(spec.judge, lib, values) : "";
      use.disabled = failed || !!spec.calibrate && Object.values(spec.calibrate).some(n => values[n] === 0);  // no overhead is no measurement of one
      stack.replaceChildren(...(spec.stack && !failed ? bars(values) : []));
      curve.innerHTML = (spec.curve && !failed ? plot(values) : "") + (spec.triangle && !failed ? corners(values) : "");
      const job = ++jobs, current = () => job === jobs, settled = () => { root.onegpu.settled = true; };
      root.onegpu = { values, errors, state, settled: failed && !spec.search };
      if (!spec.search && !failed) slowly(idling(spec, lib, state, keys(rows)), idle => { disable(idle, values); settled(); }, current);
      if (spec.search) {
        clearTimeout(think);
        advice.replaceChildren();
        if (refused) { list.replaceChildren(); settled(); }
        else slowly(searching(spec, lib, state), found => { list.replaceChildren(...plans(found, failed)); settled(); }, current);
        if (spec.search.changes && !failed) think = setTimeout(() => seen(list, () => slowly(doubling(spec, lib, state), advise, current)), 300);
      }
      clearTimeout(speak);
      speak = setTimeout(() => { live.textContent = failed ? Object.values(errors).join(between.stop) : spec.outputs.map(n => is(label(n)) + show(n, values[n])).join(between.stop); }, 700);
    }

    // What follows the readout a moment later: controls that cannot matter are disabled, and say why.
    function disable(idle, values) {
      for (const name in rows) {
        const row = rows[name], other = idle[name];
        row.idle = name in idle && (other ? fill(words.idle_while, { other: label(other), value: show(other, values[other]) }) : words.idle);
        row.parts.forEach(p => { p.disabled = Boolean(row.idle); });
        row.note.textContent = row.idle || "";
      }
    }

    // One bar for each moment, to one scale, against the capacity.
    function bars(v) {
      const { bars, capacity, onTop } = spec.stack, unit = lib.quantities[keys(bars)[0]].unit, totals = keys(bars).map(b => v[b] + onTop.reduce((t, n) => t + v[n], 0));
      const scale = Math.max(...totals, capacity ? v[capacity] * 1.02 : 0), all = [...Object.values(bars).flat(), ...onTop], names = l => [...new Set(l.map(label))];
      const colours = names(all).length > 9 ? names(all.filter(n => v[n] > 0)) : names(all);
      const parts = b => [...bars[b], ...onTop].filter(n => v[n] > 0);
      const bar = (b, i) => [make("div", { class: "onegpu-moment" }, is([b, ...onTop].map(label).join(" + ")), make("b", {}, human(totals[i], unit, lib.words))),
        make("div", { class: "onegpu-bar" }, ...parts(b).map(n => make("i", { class: `onegpu-c${colours.indexOf(label(n)) % 9}`, style: `width:${100 * v[n] / scale}%`, title: is(label(n)) + show(n, v[n]) })),
          ...(capacity ? [make("span", { class: "onegpu-limit", style: `left:${100 * v[capacity] / scale}%` })] : []))];
      const most = {};  // each part once, where it is largest
      for (const n of keys(bars).flatMap(parts)) if (!(v[n] <= v[most[label(n)]])) most[label(n)] = n;
      const legend = make("ul", {}, ...Object.values(most).map(n => make("li", {}, make("i", { class: `onegpu-c${colours.indexOf(label(n)) % 9}` }), pair(label(n), show(n, v[n])))));
      return [make("div", { class: "onegpu-bars" }, ...keys(bars).flatMap(bar)), ...(capacity ? [make("p", { class: "onegpu-moment onegpu-capacity" }, is(`┊ ${label(capacity)}`), make("b", {}, show(capacity, v[capacity])))] : []), legend];
    }

    // Three shares as a triangle: full at the corners; an arrow stands for a point too far out to draw.
    function corners(v) {
      const names = spec.triangle, W = 350, H = 222, cx = 175, cy = 136, R = 84, most = 1.12;
      const point = (i, share) => { const angle = -Math.PI / 2 + i * 2 * Math.PI / 3; return [cx + R * share * Math.cos(angle), cy + R * share * Math.sin(angle)]; };
      const ring = share => `<polygon class="onegpu-tick" points="${names.map((_, i) => point(i, share).join(",")).join(" ")}"/>`;
      const at = names.map((n, i) => point(i, Math.min(most, v[n])));
      return `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${names.map(n => pair(label(n), show(n, v[n]))).join(between.list)}">` + [0.25, 0.5, 0.75, 1].map(ring).join("")
        + `<polygon class="onegpu-shape" points="${at.map(p => p.join(",")).join(" ")}"/>` + at.map(([x, y], i) => v[names[i]] > most ? `<path transform="translate(${x} ${y}) rotate(${120 * i})" d="M-7 4 0-8 7 4z"/>` : `<circle cx="${x}" cy="${y}" r="5"/>`).join("")
        + names.map((n, i) => { const x = [175, 267, 83][i], y = i ? 204 : 12; return `<text x="${x}" y="${y}" text-anchor="middle">${label(n)}</text><text x="${x}" y="${y + 14}" text-anchor="middle">${show(n, v[n])}</text>`; }).join("") + "</svg>";
    }

    // A log–log curve with the reader's point on it.
    function plot(v) {
      const { x, y } = spec.curve, qx = lib.quantities[x], qy = lib.quantities[y], { low, high } = qx.slider, points = [];
      for (let i = 0; i <= 40; i++) {
        const value = low * (high / low) ** (i / 40), w = { ...v, [x]: qx.integer ? Math.round(value) : value };
        for (const name of spec.formulas) w[name] = lib.formulas[name](w);
        if (w[y] > 0 && Number.isFinite(w[y])) points.push([w[x], w[y]]);
      }
      if (points.length < 2) return "";
      const W = 400, H = 244, L = 84, B = 42, A = 26, ys = points.map(p => p[1]).concat(v[y]), [y0, y1] = [Math.min(...ys), Math.max(...ys) * 1.0001];
      const px = a => L + (W - L - 20) * Math.log(a / low) / Math.log(high / low), py = a => H - B - (H - B - A) * Math.log(a / y0) / Math.log(y1 / y0);
      const decades = (a, b) => { const t = []; for (let e = Math.ceil(Math.log10(a) - 1e-9); 10 ** e <= b * 1.001; e++) t.push(10 ** e); const step = Math.ceil(t.length / 6); return t.filter((_, i) => i % step === 0); };
      const nice = [1, 60, 3600, 86400, MONTH, YEAR, 10 * YEAR, 100 * YEAR, 1000 * YEAR, 1e4 * YEAR, 1e5 * YEAR, 1e6 * YEAR];
      const ticks = (q, a, b) => q.unit === "s" ? nice.filter(t => t >= a && t <= b).slice(-7) : decades(a, b);
      const tick = (q, t) => q.unit === "s" && t === MONTH ? count(lib.words, "month", "1") : human(t, q.unit, lib.words).replace(/ \(.*/, "");
      const safe = t => String(t).replace(/[&<"]/g, c => ({ "&": "&amp;", "<": "&lt;", '"': "&quot;" })[c]);
      return `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${safe(is(qy.label + between.list + qx.label) + show(x, v[x]) + between.list + show(y, v[y]))}">`
        + ticks(qx, low, high).map(t => `<line class="onegpu-tick" x1="${px(t)}" x2="${px(t)}" y1="${A}" y2="${H - B}"/><text x="${px(t)}" y="${H - B + 15}" text-anchor="middle">${safe(tick(qx, t))}</text>`).join("")
        + ticks(qy, y0, y1).map(t => `<line class="onegpu-tick" x1="${L}" x2="${W - 20}" y1="${py(t)}" y2="${py(t)}"/><text x="${L - 6}" y="${py(t) + 4}" text-anchor="end">${safe(tick(qy, t))}</text>`).join("")
        + `<text x="${(W + L) / 2}" y="${H - 6}" text-anchor="middle">${safe(qx.label)}</text><text x="4" y="12">${safe(qy.label)}</text>`
        + `<polyline points="${points.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" ")}"/><circle cx="${px(Math.min(high, Math.max(low, v[x])))}" cy="${py(v[y])}" r="6"/></svg>`;
    }

    update();
    if (spec.search?.changes) beforePrint(() => advice.firstChild || keys(root.onegpu.errors).length || advise(whatFirst(spec, lib, state)));  // on paper nobody scrolls to it
    return { set(next) { if (JSON.stringify(next) !== JSON.stringify(state)) { state = next; refused = null; update(); } } };
  }

  // The calls that give a calculator's numbers in Python.
  function pythonCode(spec, lib, state) {
    const names = [...keys(spec.pickers), ...keys(spec.inputs)], mine = own(state), rows = new Set(), modules = {};
    const literal = x => typeof x === "boolean" ? (x ? "True" : "False") : typeof x === "string" ? JSON.stringify(x) : String(x);
    const row = n => { rows.add(`${n.toUpperCase()}S`); return `${n.toUpperCase()}S[${JSON.stringify(state[n])}]`; };
    const shape = () => { rows.add("Transformer"); return `Transformer(${entries(state.shape).map(([n, x]) => `${n}=${literal(x)}`).join(", ")})`; };
    const said = n => n in state || !spec.inputs[n].source && !spec.inputs[n].usual;
    const argument = n => `${n}=${n in spec.pickers ? (n === "model" && mine ? shape() : row(n)) : literal(valueOf(spec, lib, state, n))}`;
    const calls = entries(spec.python).map(([name, [module, call, takes]]) => {
      (modules[module] ||= []).push(call);
      return `    "${name}": ${call}(${names.filter((n, i) => takes[i] === "1" && said(n)).map(argument).join(", ")}),\n`;
    });
    return [`from onegpu import ${[...rows].sort().join(", ")}\n`].filter(() => rows.size).concat(entries(modules).map(([m, calls]) => `from onegpu.${m} import ${calls.sort().join(", ")}\n`)).join("") + `\n{\n${calls.join("")}}\n`;
  }

  // -- one scenario for all calculators of a site --------------------------------------------------
  // What the reader set, by name; the shape of a model of one's own; a calibration. The browser keeps it, and the page's link holds it.

  const PRIVATE = ["shape", "calibration"], STORE = "onegpu-scenario";  // what is private is in no link that a server reads

  // What is legal in a scenario, and what is not, as "name = value".
  function sifted(scenario, lib) {
    const found = {}, ignored = [], has = (o, n) => o && Object.hasOwn(o, n), isObject = x => x !== null && typeof x === "object" && !Array.isArray(x);
    if (!isObject(scenario)) return [found, ["scenario"]];
    const { shape, calibration, ...set } = scenario, legal = (n, x) => has(lib.quantities, n) && !check(lib.quantities[n], n, x, lib.words);
    const drop = (n, x) => void ignored.push(`${n} = ${typeof x === "string" ? x : JSON.stringify(x)}`);
    if (shape !== undefined) try {
      if (!lib.fields.every(n => !has(shape, n) || legal(n, shape[n])) || typeof shape.name !== "string") throw new RangeError();
      counted(lib, shape);
      found.shape = shape;
    } catch { drop("shape", shape); }
    if (isObject(calibration)) found.calibration = fromEntries(entries(calibration).filter(([n, m]) => isObject(m) && isObject(m.at) && legal(n, m.value) || drop(n, m)));
    else if (calibration !== undefined) drop("calibration", calibration);
    for (const [n, x] of entries(set)) has(lib.rows, n) ? (has(lib.rows[n], x) || n === "model" && found.shape?.name === x ? found[n] = x : drop(n, x)) : legal(n, x) ? found[n] = x : drop(n, x);
    return [found, ignored];
  }

  // The part of a query that is ours, as a scenario.
  function fromQuery(query, lib) {
    const found = {};
    for (const [n, text] of new URLSearchParams(query)) {
      const q = Object.hasOwn(lib.quantities, n) && lib.quantities[n];
      if (PRIVATE.includes(n)) try { found[n] = JSON.parse(text); } catch { found[n] = text; }
      else if (Object.hasOwn(lib.rows, n)) found[n] = text;
      else if (q) found[n] = q.choices ? (q.choices.find(c => String(c.value) === text) || { value: text }).value : parse(text, q.unit, lib.suffixes);
    }
    return found;
  }

  // An address with a scenario in place of the one that it holds.
  function addressed(address, scenario, lib, all) {
    const url = new URL(address);
    for (const n of [...url.searchParams.keys()]) if (PRIVATE.includes(n) || n in lib.rows || n in lib.quantities) url.searchParams.delete(n);
    for (const [n, x] of entries(scenario)) if (all || !PRIVATE.includes(n)) url.searchParams.set(n, PRIVATE.includes(n) ? JSON.stringify(x) : x);
    return url.href;
  }

  // A calculator's state: its first values, what was measured in place of them, and what the reader set in place of both.
  function applied(spec, lib, { shape, calibration, ...set }) {
    const state = full(spec, { ...spec.start }), measured = entries(calibration || {}).filter(([n]) => n in spec.inputs);
    for (const [n, { value }] of measured) state[n] = value;
    if (measured.length) state.calibration = fromEntries(measured);
    if (shape && spec.pickers.model) state.shape = shape;
    for (const [n, x] of entries(set)) if (n in spec.pickers ? spec.pickers[n].includes(x) || n === "model" && shape?.name === x : n in spec.inputs) state[n] = x;
    return state;
  }

  function* shareAll(roots) {
    const lib = window.ONEGPU, views = [], wholeLink = location.protocol === "file:";
    const kept = () => { try { return JSON.parse(localStorage.getItem(STORE)) || {}; } catch { return {}; } };
    const asked = fromQuery(location.search, lib), back = performance.getEntriesByType("navigation")[0]?.type === "back_forward", stored = kept();
    const hidden = fromEntries(PRIVATE.filter(n => Object.hasOwn(stored, n)).map(n => [n, stored[n]]));
    let [scenario, ignored] = sifted(keys(asked).length && !back ? { ...hidden, ...asked } : stored, lib), timer, frame;

    const keep = () => {
      clearTimeout(timer);
      timer = null;
      try { localStorage.setItem(STORE, JSON.stringify(scenario)); } catch { /* the link holds it all the same */ }
      const here = addressed(location.href, scenario, lib, wholeLink);
      try { if (here !== location.href) history.replaceState(history.state, "", here); } catch { /* a browser may forbid it for a file */ }
      const home = new URL(document.documentElement.dataset.content_root || "./", location.href).href.replace(/[?#].*/, "");
      for (const a of document.querySelectorAll("a[href]")) if ((a.hreflang || a.href.startsWith(home)) && /\.html$|\/$/.test(a.pathname) && !a.getAttribute("href").startsWith("#")) a.href = addressed(a.href, scenario, lib, wholeLink);
    };
    const spread = from => {
      clearTimeout(timer);
      timer = setTimeout(keep, 300);
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => views.forEach(view => view !== from && view.follow()));
    };
    const hear = (view, after, before) => {
      if (!before) scenario = {};
      else for (const n of keys({ ...before, ...after })) if (after[n] !== before[n] && n !== "calibration") {
        scenario = { ...scenario, [n]: after[n] };
        if (after[n] === undefined || n in lib.quantities && check(lib.quantities[n], n, after[n], lib.words)) delete scenario[n];
      }
      spread(view);
    };
    const site = { link: () => addressed(location.href, scenario, lib, true) };
    for (const root of roots) {
      const spec = JSON.parse(root.querySelector("script").textContent), own = local(spec), view = {};
      if (spec.calibrate) mount(root, spec, own, full(spec, { ...spec.start }));  // what was measured is its own scenario
      else {
        const shown = mount(root, spec, own, applied(spec, own, scenario), (after, before) => hear(view, after, before), site);
        view.follow = () => shown.set(applied(spec, own, scenario));
        views.push(view);
      }
      onPaper(root, spec, own);
      yield;
    }
    document.addEventListener("onegpu:calibration", ({ detail }) => {
      const { calibration, ...rest } = scenario;
      scenario = detail ? { ...rest, calibration: { ...calibration, ...detail } } : rest;
      for (const n in detail || calibration) delete scenario[n];
      spread();
    });
    if (ignored.length && roots.length) roots[0].before(make("p", { class: "onegpu-ignored", role: "status" }, fill(lib.words.calculator.ignored, { names: ignored.join(lib.words.join.list) })));
    if (keys(scenario).length || ignored.length) keep();
    for (const leave of ["pagehide", "click"]) addEventListener(leave, () => timer && keep(), true);
  }

  // -- exercises: the same draws and the same words as exercise.py -------------------------------

  // Numbers from 0 to below 1 for a text: mulberry32, started with the text's FNV-1a hash.
  function* uniform(text) {
    let state = 0x811C9DC5;
    for (const c of text) state = Math.imul(state ^ c.charCodeAt(0), 0x01000193);
    for (;;) {
      state = state + 0x6D2B79F5 | 0;
      let x = Math.imul(state ^ state >>> 15, state | 1);
      x ^= x + Math.imul(x ^ x >>> 7, x | 61);
      yield ((x ^ x >>> 14) >>> 0) / 2 ** 32;
    }
  }

  function drawn(spec, seed) {
    const numbers = uniform(`${spec.exercise} ${seed}`);
    return fromEntries(entries(spec.draw).map(([n, values]) => [n, values[seed ? Math.floor(numbers.next().value * values.length) : 0]]));
  }

  // The question and the worked answer of a variant.
  function written(spec, lib, seed) {
    const THEN = "then.", given = entries(drawn(spec, seed)), first = fromEntries(given.filter(([n]) => !n.startsWith(THEN)));
    const second = { ...first, ...fromEntries(given.filter(([n]) => n.startsWith(THEN)).map(([n, x]) => [n.slice(THEN.length), x])) };
    const values = [first, second].map(state => evaluate({ ...spec, outputs: [] }, lib, state).values);
    return [spec.words.ask, spec.words.answer].map(text => text.replace(/\{(then\.)?(\w+)(?::(\w+))?\}/g, (_, then, name, how) => {
      if (spec.pickers.includes(name)) return told((then ? second : first)[name], lib.words);
      const q = lib.quantities[name], x = values[then ? 1 : 0][name], choice = q.choices?.[x], shown = choice ? choice.label : human(x, q.unit, lib.words);
      if (how === "exact") return x >= 1e4 && Number.isInteger(x) ? grouped(x) : String(x);
      if (how === "short") return shown.replace(/ \(.*/, "").replace(` ${unitOf(q.unit, lib.words)}`, "");
      return spec.words[name]?.[choice ? choice.value : x] ?? shown;
    }));
  }

  // A question that draws other numbers; its answer is folded again.
  function pose(root, spec, lib, seed, changed) {
    const words = lib.words.calculator.exercise, ask = make("span"), answer = make("p"), variant = make("span");
    const details = make("details", {}, make("summary", {}, words.answer), answer), again = make("button", { type: "button" }, words.another), back = make("button", { type: "button" }, words.printed);
    const set = next => {
      seed = next;
      [ask.textContent, answer.textContent] = written(spec, lib, seed);
      details.open = false;
      variant.textContent = seed ? fill(words.variant, { seed }) : "";
      back.hidden = !seed;
    };
    again.addEventListener("click", () => {
      const now = ask.textContent, last = seed + 20;
      do set(seed + 1); while (ask.textContent === now && seed < last);  // another one, not the same by chance
      changed(seed);
    });
    back.addEventListener("click", () => { set(0); changed(0); again.focus(); });
    const question = make("p", { "aria-live": "off" }, ...(spec.number ? [make("strong", {}, spec.number), " "] : []), ask);
    root.addEventListener("focusin", () => question.setAttribute("aria-live", "polite"));  // all exercises change; the one at hand is read out
    root.addEventListener("focusout", () => question.setAttribute("aria-live", "off"));
    root.replaceChildren(question, details, make("p", { class: "onegpu-again" }, again, variant, back));
    set(seed);
    return { set };
  }

  // In a notebook each exercise has its own seed, a trait of the widget.
  function poseWidget(model, el, spec) {
    const root = el.appendChild(make("div", { class: "onegpu-exercise" }));
    const view = pose(root, spec, compile(spec.library), model.get("seed"), seed => { model.set("seed", seed); model.save_changes(); });
    model.on("change:seed", () => view.set(model.get("seed")));
  }

  // All exercises of a page show one variant, and the page's link says which.
  function* poseAll() {
    const seed = new URLSearchParams(location.search).get("seed"), first = /^[1-9]\d{0,8}$/.test(seed) ? +seed : 0, views = [];
    for (const root of document.querySelectorAll(".onegpu-exercise")) {
      const spec = JSON.parse(root.querySelector("script").textContent);
      views.push(pose(root, spec, local(spec), first, next => { views.forEach(view => view.set(next)); link(next); }));
      yield;
    }
  }

  function link(seed) {
    const url = new URL(location.href);
    seed ? url.searchParams.set("seed", seed) : url.searchParams.delete("seed");
    try { history.replaceState(history.state, "", url); } catch { /* a browser may forbid it for a file; the page shows the variant all the same */ }
  }

  // -- where it runs ---------------------------------------------------------------------------

  const functions = table => fromEntries(entries(table).map(([n, code]) => [n, new Function("v", `return ${code}`)]));
  const compile = lib => ({ ...lib, formulas: functions(lib.formulas), rules: functions(lib.rules), ...(lib.families && { families: new Function(`return ${lib.families}`)() }) });
  const full = (spec, state) => ({ ...fromEntries(entries(spec.pickers).map(([n, rows]) => [n, rows[0]])), ...state });

  // In Jupyter, Colab, VS Code: an anywidget.
  function render({ model, el }) {
    const spec = model.get("spec");
    if (spec.exercise) return poseWidget(model, el, spec);
    const lib = compile(spec.library);
    let state = full(spec, model.get("params"));
    const keep = next => { state = next; model.set("params", next); model.save_changes(); };
    const view = mount(el, spec, lib, state, keep);
    model.on("change:params", () => view.set(state = full(spec, model.get("params"))));
    const hear = ({ detail }) => {
      const old = state.calibration || {}, set = fromEntries(entries(state).filter(([n, x]) => n !== "calibration" && !(n in (detail || {})) && x !== spec.start[n] && x !== old[n]?.value));
      const next = applied(spec, lib, { ...set, calibration: detail && { ...old, ...detail } });
      view.set(next);
      keep(next);
    };
    document.addEventListener("onegpu:calibration", hear);
    return () => document.removeEventListener("onegpu:calibration", hear);  // when the cell runs again
  }

  // In the built page: every readable table with a specification becomes live, one after another, so that no frame waits for all of them.
  function* upgrading() {
    stops();
    beforePrint(fitEquations);
    yield* shareAll([...document.querySelectorAll(".onegpu-calculator")]);
    yield* poseAll();
  }

  // What a link to a section leads to must not move later; else only the first calculator is there at once.
  function upgrade() {
    const job = upgrading();
    job.next();
    location.hash ? drain(job) : slowly(job);
  }

  // -- keyboard and paper ----------------------------------------------------------------------

  // A box that scrolls is a stop for the keyboard; a box that shows everything is none.
  function stops() {
    const seen = new ResizeObserver(all => all.forEach(({ target: box }) => { if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; else box.removeAttribute("tabindex"); }));
    document.querySelectorAll(".onegpu-equation, .pst-scrollable-table-container, pre").forEach(box => seen.observe(box));
  }

  function beforePrint(act) {
    addEventListener("beforeprint", act);
    matchMedia("print").addEventListener("change", act);
  }

  // On paper a calculator's controls are a table: what stands there, and of the folded ones those that the reader changed.
  function onPaper(root, spec, lib) {
    const paper = make("table", { class: "onegpu-paper" });
    const changed = name => { const { [name]: mine, ...others } = root.onegpu.state; return mine !== undefined && mine !== valueOf(spec, lib, others, name); };
    root.querySelector(".onegpu-controls").before(paper);
    beforePrint(() => paper.replaceChildren(...[...root.querySelectorAll(".onegpu-row")].flatMap(row => {
      const control = row.querySelector("select, [type=text]"), { value, selectedOptions } = control;
      return row.closest("details") && !changed(control.dataset.name) ? [] : make("tr", {}, make("th", { scope: "row" }, row.firstChild.textContent),
        make("td", {}, selectedOptions ? selectedOptions[0]?.text : value, row.matches(".onegpu-wrong") ? ` ${row.querySelector(".onegpu-note").textContent}` : ""));
    })));
  }

  // A long equation cannot scroll on paper: it is set smaller, to the width of a sheet in CSS pixels.
  function fitEquations() {
    for (const math of document.querySelectorAll(".onegpu-equation math:not([style])")) {
      math.style.minWidth = 0;
      math.style.cssText = `--fit:${Math.min(1, 640 / math.getBoundingClientRect().width)}`;
    }
  }

  // The site's library, with the formulas that a specification brings along.
  function local(spec) {
    const own = spec.own ? compile(spec.own) : { formulas: {}, rules: {}, quantities: {}, words: {} }, site = window.ONEGPU, lib = { ...site };
    for (const part of ["formulas", "rules", "quantities"]) lib[part] = { ...site[part], ...own[part] };
    lib.words = { ...site.words, rule: { ...site.words.rule, ...own.words.rule } };
    return lib;
  }
  if (typeof window !== "undefined" && window.ONEGPU) document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", upgrade) : upgrade();

  return { significant, human, entry, parse, readConfig, counted, search, evaluate, judged, matters, blocker, whatFirst, compile, full, mount, uniform, drawn, written, sifted, fromQuery, addressed, applied, pythonCode, render };
})();
