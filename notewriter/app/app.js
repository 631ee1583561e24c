// --- Keys: an element with `data-key` is clicked by each of its keys -------------------------------

document.addEventListener("keydown", (event) => {
  // A key that is held down answers once.
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("input, select, textarea")) return;
  for (const element of document.querySelectorAll("[data-key]")) {
    if (!element.dataset.key.split(" ").includes(event.key)) continue;
    event.preventDefault();
    element.click();
    return;
  }
});

// A second answer before the next page has come would count for the same texts.
let sent = false;
document.addEventListener("submit", (event) => {
  if (sent) event.preventDefault();
  sent = true;
});
addEventListener("pageshow", () => { sent = false; });

// --- What stays as it was left on the page before --------------------------------------------------

for (const button of document.querySelectorAll("[data-toggle]")) {
  const name = button.dataset.toggle;
  const set = (on) => {
    document.body.classList.toggle(name, on);
    button.setAttribute("aria-pressed", on);
  };
  set(sessionStorage.getItem(name) === "true");
  button.addEventListener("click", () => {
    set(!document.body.classList.contains(name));
    sessionStorage.setItem(name, document.body.classList.contains(name));
  });
}
for (const details of document.querySelectorAll("details[data-remember]")) {
  const name = details.dataset.remember;
  details.open = sessionStorage.getItem(name) !== "false";
  details.addEventListener("toggle", () => sessionStorage.setItem(name, details.open));
}

// --- An answer as it grows: each section fills its place with the events of its address ------------

const columns = [...document.querySelectorAll("[data-events]")].map((section) => {
  const column = { section, steps: [] };
  const status = section.querySelector("[role=status]");
  const source = new EventSource(section.dataset.events);
  // Left alone, the browser would ask again.
  const end = (text) => { source.close(); status.textContent = text; };
  source.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.kind === "waiting") { status.textContent = event.text; return; }
    if (event.kind === "answer" || event.kind === "error") {
      section.querySelector(".outcome").append(...outcome(event));
      end(event.kind === "answer" ? event.cost || "answered" : "ended with an error");
    } else {
      const element = event.kind === "search" ? searched(event) : wrote(event);
      section.querySelector(".steps").append(element);
      status.textContent = "answering";
      column.steps.push({ element, says: event.query ?? event.text });
      markParting();
    }
  };
  source.onerror = () => end("the connection was lost");
  return column;
});

function outcome({ kind, text, note }) {
  if (kind === "error") return [make("div", { class: "box error text-block" }, text)];
  const parts = [make("div", { class: "box" }, make("div", { class: "name" }, "Answer"), make("div", { class: "text-block final" }, text || "(empty)"))];
  if (note) parts.push(make("div", { class: "box" }, make("div", { class: "name" }, "The note that it was written from"), make("div", { class: "text-block" }, note)));
  return parts;
}

function searched({ query, passages, cost }) {
  const found = passages.map(({ title, text }) => make("li", {}, make("details", {}, make("summary", {}, title), make("div", { class: "text-block" }, text))));
  return make("li", { class: "retrieve" },
    make("div", { class: "step-head" }, make("b", {}, "search"), make("span", { class: "name" }, `${plural(passages.length, "passage")}, ${cost}`)),
    make("div", { class: "text-block query" }, query),
    make("ol", { class: "titles" }, ...found));
}

const CHANGES = { kept: "span", added: "ins", dropped: "del" };

function wrote({ stage, is_note: isNote, words, cost }) {
  return make("li", { class: isNote ? "note" : "generate" },
    make("div", { class: "step-head" }, make("b", {}, stage), make("span", { class: "name" }, cost)),
    make("div", { class: "text-block" }, ...words.map(([piece, change]) => make(CHANGES[change], {}, piece))));
}

// Marks the first step at which two answers differ, once both have it.
let parted = false;
function markParting() {
  const [one, other] = columns;
  if (!other || parted) return;
  const place = one.steps.findIndex(({ says }, number) => other.steps[number] && other.steps[number].says !== says);
  if (place < 0) return;
  parted = true;
  for (const { steps } of [one, other]) {
    steps[place].element.classList.add("parting");
    steps[place].element.querySelector(".step-head").append(make("span", { class: "chip warn" }, "here they part"));
  }
}
