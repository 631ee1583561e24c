// --- Embedded data -------------------------------------------------------------------------------

const unpacked = new Map();
let runs, metrics, questions, chunk;

// Unpacks "words" or a block of traces once, and keeps it.
function kept(id) {
  if (!unpacked.has(id)) unpacked.set(id, unpack(id));
  return unpacked.get(id);
}

// What a run did on a question, and the texts of its prompts, call by call; null where they were left out.
async function opened(place) {
  const block = await kept(`traces-${Math.floor(place / chunk)}`);
  const outcome = block[place % chunk];
  block.pieces ??= block.flatMap(({ pieces }) => pieces ?? []);
  const text = ([role, numbers]) => [role, numbers.map((number) => block.pieces[number]).join("")];
  return { ...outcome, prompts: outcome.prompts?.map((messages) => messages.map(text)) };
}

// --- Right and wrong -----------------------------------------------------------------------------

const RIGHT = 0.5;
const called = (name) => metrics.find((metric) => metric.name === name)?.label ?? name.replaceAll("_", " ");
const SYMBOLS = { right: "✓", wrong: "✗", error: "!", absent: "–" };

// How a run did on a question by the chosen score: "right", "wrong", "error" or "absent".
function status(result) {
  if (result === null) return "absent";
  if (result.failed) return "error";
  const score = result.scores[byId("metric").value];
  return score === undefined ? "absent" : score >= RIGHT ? "right" : "wrong";
}

const FILTERS = {
  all: { label: "All", keep: () => true },
  right: { label: "Right", keep: (now) => now === "right" },
  wrong: { label: "Wrong", keep: (now) => now === "wrong" || now === "error" },
  changed: { label: "Changed from the baseline", keep: (now, before) => (now === "right") !== (before === "right"), paired: true },
  gained: { label: "Gained: wrong before, right now", keep: (now, before) => now === "right" && before !== "right", paired: true },
  lost: { label: "Lost: right before, wrong now", keep: (now, before) => now !== "right" && before === "right", paired: true },
  error: { label: "With an error", keep: (now) => now === "error" },
};

// --- The list ------------------------------------------------------------------------------------

// The indices of the questions that contain a word in question, id, gold answers or any run's prediction or note.
async function holding(word) {
  const found = new Set();
  for (const [other, indices] of Object.entries(await kept("words"))) {
    if (other.includes(word)) for (const index of indices) found.add(index);
  }
  for (const [index, question] of questions.entries()) {
    question.text ??= [question.id, question.question, ...question.answers].join("\n").toLowerCase();
    if (question.text.includes(word)) found.add(index);
  }
  return found;
}

let searches = 0;

async function refresh() {
  const search = (searches += 1);
  const sought = [];
  for (const word of byId("search").value.toLowerCase().split(/\s+/).filter(Boolean)) sought.push(await holding(word));
  // A later search has started in the meantime.
  if (search !== searches) return;
  const filter = FILTERS[byId("show").value];
  const run = Number(byId("run").value);
  const fitting = [...questions.keys()].filter((index) => {
    if (!sought.every((found) => found.has(index))) return false;
    const before = status(questions[index].runs[0]);
    const now = status(questions[index].runs[run]);
    if (filter.paired && (before === "absent" || now === "absent")) return false;
    return filter.keep(now, before);
  });
  byId("count").textContent = `${fitting.length.toLocaleString("en")} of ${plural(questions.length, "question")}`;
  show(fitting, "No question matches the search and the filter.");
}

function listItem(index) {
  const { id, question, runs: results } = questions[index];
  const item = make("li", { role: "option", tabindex: "-1", "data-index": index, "data-question": id },
    make("span", { class: "text" }, question),
    make("span", { class: "marks" }, ...results.map((result, run) => mark(result, runs[run].label))));
  item.addEventListener("click", () => select(index));
  return item;
}

function mark(result, label) {
  const state = status(result);
  return make("span", { class: `mark ${state}`, title: `${label}: ${state}` }, SYMBOLS[state]);
}

// --- One question --------------------------------------------------------------------------------

function detail(index) {
  const { id, question, answers, runs: results } = questions[index];
  const columns = results.map((result, run) => (result === null ? null : column(runs[run], result))).filter((element) => element !== null);
  return [
    make("span", { class: "name mono" }, id),
    make("h3", {}, question),
    make("div", {}, make("span", { class: "soft" }, answers.length > 1 ? "Gold answers: " : "Gold answer: "), make("b", { id: "golds" }, answers.join(" / "))),
    make("div", { id: "columns" }, ...columns),
  ];
}

// Answer, note and steps are added to the column once they are unpacked.
function column(run, result) {
  const heading = make("h4", {}, run.label);
  heading.setAttribute("style", `--run: ${run.colour}`);
  const element = make("section", { class: "column", "data-column": run.label }, heading);
  opened(result.trace).then((outcome) => {
    const { prediction, note, error } = outcome;
    const scores = Object.entries(result.scores).map(([name, value]) => make("span", {}, `${called(name)} ${Number.isInteger(value) ? value : value.toFixed(3)}`));
    if (error) element.append(make("div", { class: "box error text-block" }, `Error: ${error}`));
    element.append(make("div", { class: "box" },
      make("div", { class: "step-head" }, mark(result, run.label), make("span", { class: "name" }, "Answer")),
      make("div", { class: "answer" }, prediction || "(empty)"),
      make("div", { class: "scores" }, ...scores)));
    if (note) {
      element.append(make("div", { class: "box final-note" },
        make("div", { class: "name" }, `Final note, ${plural(words(note).length, "word")}`), make("div", { class: "text-block" }, note)));
    }
    element.append(outcome.steps === null
      ? make("p", { class: "empty" }, "No trace was recorded.")
      : make("ol", { class: "steps" }, ...steps(outcome)));
  });
  return element;
}

function steps(outcome) {
  const notes = [];
  let calls = 0;
  return outcome.steps.map((step) => {
    if (step.kind === "retrieve") return retrieval(step);
    const item = generation(step, notes, outcome.note);
    item.append(prompt(outcome.prompts?.[calls]));
    calls += 1;
    if (step.is_note) notes.push(step.text.trim());
    return item;
  });
}

function retrieval(step) {
  return make("li", { class: "retrieve" },
    make("div", { class: "step-head" }, make("b", {}, "Retrieve"), make("span", { class: "name" }, `${plural(step.titles.length, "passage")}, ${step.seconds.toFixed(2)} s`)),
    make("div", { class: "text-block query" }, step.query),
    make("ol", { class: "titles" }, ...step.titles.map((title) => make("li", {}, title))));
}

function generation(step, notes, finalNote) {
  const { text } = step;
  const head = make("div", { class: "step-head" },
    make("b", {}, step.stage),
    make("span", { class: "name" }, `${step.prompt_tokens.toLocaleString("en")} → ${plural(step.completion_tokens, "token")}, ${step.seconds.toFixed(1)} s`));
  if (step.cut) head.append(make("span", { class: "chip warn" }, "cut at max_tokens"));
  const element = make("div", { class: "text-block completion" });
  const previous = notes[step.previous] ?? null;
  if (previous === null) {
    element.append(text || "(empty)");
  } else {
    const fresh = markNew(text, previous, element);
    head.append(make("span", { class: "chip" }, `${plural(fresh, "new word")}, ${words(previous).length} → ${words(text).length}`));
  }
  if (step.is_note && text.trim() === finalNote.trim()) head.append(make("span", { class: "chip kept" }, "the final note"));
  return make("li", { class: step.is_note ? "note" : "generate", "data-stage": step.stage }, head, element);
}

const prompt = (messages) => folded("Prompt", () => {
  if (!messages) return [make("p", { class: "soft" }, "Left out to keep this page small (--max_megabytes); it is in the run's traces.jsonl.")];
  return messages.flatMap(([role, text]) => [make("div", { class: "name" }, role), make("pre", { class: "mono" }, text)]);
}, { class: "prompt" });

// --- How a note grew -----------------------------------------------------------------------------

// Appends the text to the element, marking words that the earlier note lacks; returns how many there are.
function markNew(text, previous, element) {
  const known = new Set(words(previous).map(bare));
  let count = 0;
  for (const piece of text.split(/(\s+)/)) {
    if (bare(piece) && !known.has(bare(piece))) {
      count += 1;
      element.append(make("mark", {}, piece));
    } else {
      element.append(piece);
    }
  }
  return count;
}

// --- Start ---------------------------------------------------------------------------------------

function options(id, entries) {
  byId(id).replaceChildren(...entries.map(([value, label]) => make("option", { value }, label)));
  byId(id).hidden = entries.length < 2;
  byId(id).addEventListener("change", refresh);
}
unpack("index").then((index) => {
  ({ runs, metrics, questions, chunk, first: selected } = index);
  options("show", Object.entries(FILTERS).filter(([, filter]) => runs.length > 1 || !filter.paired).map(([name, filter]) => [name, filter.label]));
  options("run", runs.map((run, index) => [index, `in ${run.label}`]));
  options("metric", metrics.map((metric) => [metric.name, `by ${metric.label}`]));
  byId("run").value = runs.length - 1;
  for (const metric of ["em", "acc"]) if (metrics.some(({ name }) => name === metric)) { byId("metric").value = metric; break; }
  byId("search").addEventListener("input", refresh);
  refresh();
});
