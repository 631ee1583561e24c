// Every text of a model, a corpus or a dataset reaches the page through textContent, and in no other way.
const byId = (id) => document.getElementById(id);
const parse = (id) => JSON.parse(byId(id).textContent);

// Whether the browser has read an element to its end: the script runs while the page is still being read.
const complete = (id) => document.readyState !== "loading" || byId(id)?.nextElementSibling;

// What `packed` embedded. Megabytes of it: a loop over the bytes takes a tenth of the time of Uint8Array.from.
async function unpack(id) {
  while (!complete(id)) await new Promise((resolve) => setTimeout(resolve, 5));
  const binary = atob(parse(id));
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

const words = (text) => text.split(/\s+/).filter(Boolean);
const bare = (word) => word.toLowerCase().replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, "");

// --- A list, and beside it the item that is open -------------------------------------------------

// The page gives `listItem(index)`, an element of the list, and `detail(index)`, what to show of an open item.
const PORTION = 300;
const list = document.querySelector(".items");
let shown = [];
let selected = -1;

// Puts the items of these indices into the list, or a sentence where there are none. What was open stays open.
function show(indices, nothing) {
  shown = indices;
  list.replaceChildren();
  more();
  if (!shown.length) list.append(make("div", { class: "empty" }, nothing));
  select(shown.includes(selected) ? selected : shown[0] ?? -1);
}

// Long lists grow as one reads on.
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

// Scrolls the list alone: Element.scrollIntoView would move the page too.
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

// --- What is folded away -------------------------------------------------------------------------

// Prompts are long and seldom read: `elements()`, which may take its time, goes onto the page when it is opened.
function folded(title, elements, attributes = {}) {
  const element = make("details", attributes, make("summary", {}, title));
  element.addEventListener("toggle", async () => element.append(...(await elements())), { once: true });
  return element;
}
