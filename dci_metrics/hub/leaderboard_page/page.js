"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const state = { sort: data.tests[0].key, descending: true, family: "", search: "", pair: 0 };
  let tests = data.tests, rows = [], families = [];

  function element(name, attributes = {}, ...children) {
    const svg = ["svg", "g", "line", "text", "circle", "rect", "path"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // -- where the figures come from

  const path = (repo) => repo.split("/").map(encodeURIComponent).join("/");

  async function read(address) {
    const answer = await fetch(`${data.endpoint}/api/${address}`);
    if (!answer.ok) throw Object.assign(new Error(`the Hub answers ${answer.status}`), { status: answer.status });
    return answer.json();
  }

  function notes(text) {
    const found = String(text || "");
    const interval = /95 % interval (\d+(?:\.\d+)?) to (\d+(?:\.\d+)?)(?:;|$)/.exec(found);
    const word = (name) => (new RegExp(`(?:^|; )${name} ([^;]+)`).exec(found) || [])[1] || null;
    const ends = interval ? [Number(interval[1]), Number(interval[2])] : null;
    return { ci95: ends && ends[0] <= ends[1] && ends[1] <= 100 ? ends : null, family: word("family"), dtype: word("dtype") };
  }

  async function rowOf(model, listed) {
    // The list has the figure of one test; those of all of them stand with the model.
    const found = [...listed].reverse().map((entry) => [entry.taskId || entry.task_id || data.tests[0].key, entry]);
    const info = await read(`models/${path(model)}?expand=evalResults`).catch((error) => {
      if (error.status === 401 || error.status === 404) return {};
      throw error;
    });
    for (const item of info.evalResults || []) {
      const entry = item.data || item;
      if (entry.dataset && entry.dataset.id === data.dataset) found.push([entry.dataset.task_id, entry]);
    }
    const row = { model, repo: model, family: null, dtype: null, scores: {}, pull_request: listed[0].pullRequest ?? null };
    for (const [test, entry] of found) {
      const said = notes(entry.notes), value = entry.value;
      // Anybody may write anything into a model's file of results.
      if (!Number.isFinite(value) || value < 0 || value > 100) continue;
      row.family = said.family || row.family;
      row.dtype = said.dtype || row.dtype;
      row.scores[test] = { value, ci95: said.ci95 };
    }
    return row;
  }

  async function fromHub() {
    const listed = Map.groupBy
      ? Map.groupBy(await read(`datasets/${path(data.dataset)}/leaderboard?base_model=false`), (e) => e.modelId)
      : (await read(`datasets/${path(data.dataset)}/leaderboard?base_model=false`)).reduce(
          (all, e) => all.set(e.modelId, [...(all.get(e.modelId) || []), e]), new Map());
    const waiting = [...listed], done = [];
    const work = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) done.push(await rowOf(...next));
    };
    await Promise.all(Array.from({ length: 8 }, work));
    return done;
  }

  // -- which rows are shown, and in which order

  function shown() {
    const wanted = state.search.trim().toLowerCase();
    const kept = rows.filter((row) => (!state.family || (row.family || "unknown") === state.family)
      && row.model.toLowerCase().includes(wanted));
    const key = (row) => state.sort === "model" ? row.model : state.sort === "family" ? row.family || ""
      : row.scores[state.sort] ? row.scores[state.sort].value : null;
    return kept.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null) || a.model.localeCompare(b.model);
      const order = typeof x === "string" ? x.localeCompare(y) : x - y;
      return (state.descending ? -order : order) || a.model.localeCompare(b.model);
    });
  }

  // -- table

  function header() {
    const columns = [["model", "Model"], ["family", "Family"], ...tests.map((test) => [test.key, test.title])];
    document.querySelector("thead tr").replaceChildren(...columns.map(([key, title], i) => {
      const button = element("button", { type: "button" }, title);
      const sorted = key === state.sort ? (state.descending ? "descending" : "ascending") : "none";
      const cell = element("th", { scope: "col", "aria-sort": sorted, "data-key": key, class: i < 2 ? "text" : "" }, button);
      button.addEventListener("click", () => {
        state.descending = key === state.sort ? !state.descending : i >= 2;
        state.sort = key;
        draw();
        document.querySelector(`thead th[data-key="${key}"] button`).focus();
      });
      return cell;
    }));
  }

  const figure = (value) => value.toFixed(2);
  const range = (ci95) => `${figure(ci95[0])} to ${figure(ci95[1])}`;

  function nameCell(row) {
    const name = row.repo ? element("a", { href: `${data.endpoint}/${path(row.repo)}` }, row.model) : row.model;
    const cell = element("th", { scope: "row" }, name);
    if (row.dtype && row.dtype !== "float32") cell.append(element("small", {}, row.dtype));
    if (row.pull_request && row.repo) {
      const address = `${data.endpoint}/${path(row.repo)}/discussions/${encodeURIComponent(row.pull_request)}`;
      cell.append(element("small", {}, element("a", { href: address }, `pull request ${row.pull_request}`)));
    }
    return cell;
  }

  function table(found) {
    const best = new Map(tests.map(({ key }) => [key, Math.max(...found.map((row) => row.scores[key]?.value ?? -1))]));
    document.querySelector("tbody").replaceChildren(...found.map((row) => element("tr", {}, nameCell(row),
      element("td", { class: "text" }, row.family || "–"),
      ...tests.map(({ key }) => {
        const score = row.scores[key];
        if (!score) return element("td", {}, "–");
        const top = found.length > 1 && score.value === best.get(key);
        const cell = element("td", {}, element("span", top ? { class: "best" } : {}, figure(score.value)));
        if (score.ci95) cell.append(element("small", {}, range(score.ci95)));
        return cell;
      }))));
    document.querySelector("tfoot").replaceChildren(element("tr", {}, element("th", { scope: "row" }, "Chance"),
      element("td"), ...tests.map(({ chance }) => element("td", {}, chance === null ? "–" : figure(chance)))));
  }

  // -- plot

  const HEIGHT = 340;
  const markOf = (row) => families.indexOf(row.family || "unknown") % data.colours;
  const across = (value) => `${value.toFixed(3)}%`;
  const down = (value) => 6 + HEIGHT * (1 - value / 100);

  function shape(mark) {
    const forms = [["circle", { r: 5 }], ["rect", { x: -4.5, y: -4.5, width: 9, height: 9 }],
      ["path", { d: "M0 -6 L5.8 4.6 H-5.8 Z" }], ["path", { d: "M0 -6.3 L6.3 0 L0 6.3 L-6.3 0 Z" }]];
    const [name, attributes] = forms[mark % 4];
    return element(name, { class: "shape", ...attributes });
  }

  const line = (kind, x1, y1, x2, y2) => element("line", { class: kind, x1: across(x1), y1: down(y1), x2: across(x2), y2: down(y2) });
  const label = (anchor, x, y, content, dx = 0) => element("text", { class: "tick", "text-anchor": anchor, x, y, dx }, content);

  function words(row, pair) {
    return [row.model, ...pair.map((key) => {
      const { value, ci95 } = row.scores[key];
      return `${data.known[key].title}: ${figure(value)}${ci95 ? ` (${range(ci95)})` : ""}`;
    })].join("\n");
  }

  function show(mark, text) {
    const tip = $("tip"), box = mark.getBoundingClientRect(), around = tip.parentElement.getBoundingClientRect();
    tip.textContent = text;
    tip.hidden = false;
    const left = (box.left + box.right) / 2 - around.left + 12;
    tip.style.left = `${Math.max(0, Math.min(left, around.width - tip.offsetWidth))}px`;
    tip.style.top = `${box.bottom - around.top + 8}px`;
  }

  function point(row, pair) {
    const text = words(row, pair), mark = markOf(row);
    const made = element("g", { class: `m${mark} mark`, tabindex: 0, role: "img", "aria-label": text.replaceAll("\n", ", ") }, shape(mark));
    for (const event of ["mouseenter", "focus"]) made.addEventListener(event, () => show(made, text));
    for (const event of ["mouseleave", "blur"]) made.addEventListener(event, () => { $("tip").hidden = true; });
    const [x, y] = pair.map((key) => row.scores[key].value);
    return element("svg", { x: across(x), y: down(y), width: 1, height: 1 }, made);
  }

  function plot(found) {
    const pair = data.pairs[state.pair] || [];
    const [scm, neg] = pair.map((key) => data.known[key]);
    const drawn = pair.length ? found.filter((row) => pair.every((key) => row.scores[key])) : [];
    $("tip").hidden = true;
    if (!drawn.length) {
      $("plot").replaceChildren(element("p", {}, "No model that is shown has both tests."));
      return;
    }
    const svg = element("svg", { height: HEIGHT + 46, role: "group", "aria-label": `${scm.title} against ${neg.title}, ${drawn.length} models` });
    for (const tick of [0, 25, 50, 75, 100]) {
      svg.append(line("grid", 0, tick, 100, tick), label("end", 0, down(tick) + 4, tick, -7),
        line("grid", tick, 0, tick, 100), label("middle", across(tick), HEIGHT + 22, tick));
    }
    svg.append(line("axis", 0, 0, 0, 100), line("axis", 0, 0, 100, 0), label("middle", "50%", HEIGHT + 42, `${scm.title}, %`),
      element("text", { class: "tick", "text-anchor": "middle", transform: `translate(-42 ${6 + HEIGHT / 2}) rotate(-90)` }, `${neg.title}, %`));
    if (neg.chance !== null) svg.append(line("chance", 0, neg.chance, 100, neg.chance));
    if (scm.chance !== null) svg.append(line("chance", scm.chance, 0, scm.chance, 100));
    for (const row of drawn) {
      const [x, y] = pair.map((key) => row.scores[key]);
      const bars = element("g", { class: `m${markOf(row)}` });
      if (x.ci95) bars.append(line("ci", x.ci95[0], y.value, x.ci95[1], y.value));
      if (y.ci95) bars.append(line("ci", x.value, y.ci95[0], x.value, y.ci95[1]));
      svg.append(bars);
    }
    svg.append(...drawn.map((row) => point(row, pair)));
    $("plot").replaceChildren(svg);
  }

  function legend() {
    const item = (name, ...drawing) => element("li", {}, element("svg", { viewBox: "-9 -7 18 14", "aria-hidden": "true" }, ...drawing), name);
    $("legend").replaceChildren(
      ...families.map((family, i) => item(family, element("g", { class: `m${i % data.colours}` }, shape(i % data.colours)))),
      item("chance", element("line", { class: "chance", x1: -9, x2: 9, y1: 0, y2: 0 })));
  }

  // -- all of it

  function draw() {
    const found = shown();
    header();
    table(found);
    plot(found);
    $("status").textContent = found.length === rows.length ? `${rows.length} ${rows.length === 1 ? "model" : "models"}`
      : `${found.length} of ${rows.length} models`;
  }

  function start(read) {
    rows = read;
    const present = Object.keys(data.known).filter((key) => rows.some((row) => row.scores[key]));
    if (present.length) tests = present.map((key) => ({ key, ...data.known[key] }));
    if (!tests.some((test) => test.key === state.sort)) state.sort = tests[0].key;
    families = [...new Set(rows.map((row) => row.family || "unknown"))].sort();
    $("family").append(...families.map((family) => element("option", { value: family }, family)));
    $("pair").append(...data.pairs.map(([scm, neg], i) => element("option", { value: i }, `${data.known[scm].title} and ${data.known[neg].title}`)));
    for (const name of ["family", "search", "pair"]) {
      $(name).addEventListener("input", () => { state[name] = $(name).value; draw(); });
    }
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") $("tip").hidden = true; });
    $("scatter").hidden = !data.pairs.length;
    legend();
    draw();
  }

  async function main() {
    if (data.rows) return start(data.rows);
    $("status").textContent = "Reading the leaderboard …";
    try {
      start(await fromHub());
    } catch (error) {
      const none = error.status === 400 || error.status === 404;
      start([]);
      $("status").className = "error";
      $("status").textContent = none ? `${data.dataset} has no leaderboard yet.`
        : `The leaderboard of ${data.dataset} cannot be read (${error.message}).`;
    }
  }

  main();
})();
