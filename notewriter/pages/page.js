const byId = (id) => document.getElementById(id);
const parse = (id) => JSON.parse(byId(id).textContent);

// Whether the browser has parsed an element completely: the script runs while the page is still loading.
const complete = (id) => document.readyState !== "loading" || byId(id)?.nextElementSibling;

// Decodes what `packed` embedded. A loop over megabytes takes a tenth of the time of Uint8Array.from.
async function unpack(id) {
  while (!complete(id)) await new Promise((resolve) => setTimeout(resolve, 5));
  const binary = atob(parse(id));
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const words = (text) => text.split(/\s+/).filter(Boolean);
const bare = (word) => word.toLowerCase().replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");

// --- A list, and the open item beside it ---------------------------------------------------------

// The page defines `listItem(index)`, an element of the list, and `detail(index)`, the elements of an open item.
const PORTION = 300;
const list = document.querySelector(".items");
let shown = [];
let selected = -1;

// Shows the items with these indices, or a sentence where there are none. An open item that is shown stays open.
function show(indices, nothing) {
  shown = indices;
  list.replaceChildren();
  more();
  if (!shown.length) list.append(make("div", { class: "empty" }, nothing));
  select(shown.includes(selected) ? selected : shown[0] ?? -1);
}

// Long lists are filled in portions while scrolling.
function more() {
  const from = list.childElementCount;
  list.append(...shown.slice(from, from + PORTION).map(listItem));
}

function select(index) {
  selected = index;
  while (list.childElementCount <= shown.indexOf(index)) more();
  for (const item of list.querySelectorAll("li")) {
    const chosen = Number(item.dataset.index) === index;
    item.setAttribute("aria-selected", chosen);
    if (chosen) scrollInto(item);
  }
  byId("detail").replaceChildren(...(index < 0 ? [] : detail(index)));
}

// Scrolls the list only: Element.scrollIntoView would move the page too.
function scrollInto(item) {
  const top = item.offsetTop - list.offsetTop;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + item.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top + item.offsetHeight - list.clientHeight;
}

function move(by) {
  const position = shown.indexOf(selected) + by;
  if (position < 0 || position >= shown.length) return;
  select(shown[position]);
  if (byId("panes").getBoundingClientRect().top < 0) byId("panes").scrollIntoView();
}

list.addEventListener("scroll", () => {
  if (list.scrollTop + list.clientHeight > list.scrollHeight - 1000) more();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
});

// --- Folded elements -----------------------------------------------------------------------------

// Prompts are long and rarely read: `elements()`, which may be slow, is called when the fold is opened first.
function folded(title, elements, attributes = {}) {
  const element = make("details", attributes, make("summary", {}, title));
  element.addEventListener("toggle", async () => element.append(...(await elements())), { once: true });
  return element;
}
