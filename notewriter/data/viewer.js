// The script of viewer.html.jinja, after page.js; CHUNK is how many items are compressed together.

// --- What is embedded ----------------------------------------------------------------------------

const blocks = new Map();
let items = [];
let haystacks = [];

// The long texts of an item; those of its neighbours are unpacked with them and cached.
async function long(index) {
  const block = Math.floor(index / CHUNK);
  if (!blocks.has(block)) blocks.set(block, unpack(`block-${block}`));
  return (await blocks.get(block))[index % CHUNK];
}

const content = (messages) => (messages ?? []).map((message) => message.content).join("\n");

// --- The list ------------------------------------------------------------------------------------

let searches = 0;

async function refresh() {
  const search = (searches += 1);
  const sought = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = [];
  for (const [index, item] of items.entries()) {
    if (byId("stage").value && item.stage !== byId("stage").value) continue;
    if (byId("split").value && item.split !== byId("split").value) continue;
    let missing = sought.filter((word) => !haystacks[index].includes(word));
    if (missing.length && byId("in-prompts").checked) {
      const { prompt: messages, messages: chain } = await long(index);
      const text = content(messages ?? chain).toLowerCase();
      missing = missing.filter((word) => !text.includes(word));
    }
    // A later search started while this one waited.
    if (search !== searches) return;
    if (!missing.length) fitting.push(index);
  }
  byId("count").textContent = `${fitting.length.toLocaleString("en")} of ${items.length.toLocaleString("en")}`;
  show(fitting, "Nothing fits the search and the filters.");
}

function listItem(index) {
  const item = items[index];
  const element = make("li", { role: "option", tabindex: "-1", "data-index": index, "data-question": item.question_id },
    make("span", { class: "text" }, make("span", { class: "stage" }, `${item.stage}, ${item.split}`),
      item.chosen ? content(item.chosen) : item.question_id));
  element.addEventListener("click", () => select(index));
  return element;
}

// --- One item ------------------------------------------------------------------------------------

const HIDDEN = new Set(["chosen", "rejected", "stage", "question_id", "schema"]);

function detail(index) {
  const item = items[index];
  const general = Object.entries(item).filter(([key]) => !HIDDEN.has(key) && !/^(chosen|rejected)_/.test(key));
  const head = [make("span", { class: "name mono" }, item.question_id), make("h3", {}, item.stage), facts(general)];
  return [...head, ...(item.chosen ? pair(index, item) : chain(index))];
}

function pair(index, item) {
  const [chosen, rejected] = [content(item.chosen), content(item.rejected)];
  const [left, right] = difference(pieces(chosen), pieces(rejected));
  return [
    make("div", { class: "sides" }, side("chosen", item, left), side("rejected", item, right)),
    folded("Prompt", async () => turns((await long(index)).prompt)),
    folded("Judge's replies", async () => ((await long(index)).judge_replies ?? []).map((reply) => make("pre", { class: "mono" }, reply))),
  ];
}

function side(name, item, marked) {
  const own = Object.entries(item).filter(([key]) => key.startsWith(`${name}_`)).map(([key, value]) => [key.slice(name.length + 1), value]);
  const text = make("div", { class: "text-block" });
  for (const [piece, differs] of marked) text.append(differs ? make("mark", {}, piece) : piece);
  return make("section", { class: `side ${name}` }, make("h4", {}, name), facts(own), text);
}

function chain(index) {
  const element = make("div", { class: "chain" });
  long(index).then(({ messages }) => element.append(...turns(messages)));
  return [element];
}

const turns = (messages) => messages.map((message) =>
  make("div", { class: `message ${message.role}` }, make("div", { class: "name" }, message.role), make("div", { class: "text-block" }, message.content ?? "")));

// All columns, by their names.
const facts = (entries) => make("div", { class: "facts" }, ...entries.map(([key, value]) =>
  make("span", {}, `${key.replaceAll("_", " ")} `, make("b", {}, formatted(value)))));

function formatted(value) {
  if (value === null) return "–";
  if (Array.isArray(value)) return value.map(formatted).join(", ") || "–";
  if (typeof value === "object") return Object.entries(value).filter(([, part]) => part !== null).map(([key, part]) => (key === "kind" ? part : `${key.replaceAll("_", " ")} ${formatted(part)}`)).join(", ");
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : String(Math.round(value * 1e4) / 1e4);
  return String(value);
}

// --- How the two sides differ --------------------------------------------------------------------

const MOST = 4e6;
const pieces = (text) => text.match(/\S+\s*|^\s+/g) ?? [];

// Both lists as [piece, whether it is not part of the longest common subsequence of words]. Above two thousand
// words per side that would take seconds: there, words that the other side lacks altogether are marked.
function difference(left, right) {
  const [a, b] = [left, right].map((side) => side.map((piece) => piece.trim()));
  if (a.length * b.length > MOST) {
    const [inA, inB] = [new Set(a), new Set(b)];
    return [left.map((piece, i) => [piece, !inB.has(a[i])]), right.map((piece, i) => [piece, !inA.has(b[i])])];
  }
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const marked = [left.map((piece) => [piece, true]), right.map((piece) => [piece, true])];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      marked[0][i++][1] = false;
      marked[1][j++][1] = false;
    } else if (common[(i + 1) * width + j] >= common[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return marked;
}

// --- Start ---------------------------------------------------------------------------------------

for (const id of ["stage", "split", "in-prompts"]) byId(id).addEventListener("change", refresh);
byId("search").addEventListener("input", refresh);
unpack("index").then((embedded) => {
  items = embedded;
  haystacks = items.map((item) => [item.question_id, content(item.chosen), content(item.rejected)].join("\n").toLowerCase());
  refresh();
});
