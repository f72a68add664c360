// The page of `tidings preview`. Polls for new emails and pages, and redraws them.

const LOOK_AGAIN = 400; // milliseconds
const TITLES = { digest: "Digests", batch: "Batches", page: "Pages" };
const CHOICES = {
  width: [["600", "Desktop"], ["375", "Phone"]],
  scheme: [["light", "Light"], ["dark", "Dark"]],
  part: [["html", "HTML"], ["text", "Text"]],
};

const at = (id) => document.getElementById(id);
const chosen = { width: "600", scheme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light", part: "html" };
let board = { version: 0, sheets: [] };
let current = decodeURIComponent(location.hash.slice(1));

function element(name, text, more = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  return Object.assign(made, more);
}

const id = (sheet) => `${sheet.kind}/${sheet.name}`;

function choices() {
  for (const [name, options] of Object.entries(CHOICES)) {
    for (const [value, label] of options) {
      const input = element("input", "", { type: "radio", name, value, checked: chosen[name] === value });
      input.addEventListener("change", () => {
        chosen[name] = value;
        show();
      });
      const around = element("label", "");
      around.append(input, label);
      at(name).append(around);
    }
  }
}

function list() {
  const parts = [];
  for (const [kind, title] of Object.entries(TITLES)) {
    const of = board.sheets.filter((sheet) => sheet.kind === kind);
    if (!of.length) continue;
    const items = element("ul", "");
    for (const sheet of of) {
      const button = element("button", sheet.name, { type: "button" });
      if (id(sheet) === current) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => {
        current = id(sheet);
        history.replaceState(null, "", `#${encodeURIComponent(current)}`);
        draw();
      });
      const item = element("li", "");
      item.append(button);
      items.append(item);
    }
    parts.push(element("h2", title), items);
  }
  at("list").replaceChildren(...parts);
}

function troubled() {
  const { trouble } = board;
  at("trouble").hidden = !trouble;
  if (!trouble) return;
  const next = board.sheets.length ? "Below is what was made before." : "Save the file again once it is fixed.";
  at("trouble").replaceChildren(element("h2", trouble), element("p", next));
}

function show() {
  const sheet = board.sheets.find((one) => id(one) === current);
  const text = chosen.part === "text" && sheet?.text != null;
  at("head").hidden = !sheet;
  at("frame").hidden = !sheet || text;
  at("text").hidden = !text;
  if (!sheet) return;
  at("subject").textContent = sheet.subject ?? sheet.name;
  at("facts").textContent = `${(sheet.bytes / 1000).toFixed(1)} KB of HTML` + (sheet.text == null ? "" : `, ${sheet.text.length} characters of text`);
  at("text").textContent = sheet.text ?? "";
  const frame = at("frame");
  frame.style.width = `${chosen.width}px`;
  // The document in the frame sees this as the color scheme that its reader prefers.
  frame.style.colorScheme = chosen.scheme;
  const source = `${sheet.html}&${chosen.scheme}`;
  if (frame.getAttribute("src") !== source) frame.setAttribute("src", source);
}

function draw() {
  if (!board.sheets.some((sheet) => id(sheet) === current)) current = board.sheets.length ? id(board.sheets[0]) : "";
  troubled();
  at("notes").replaceChildren(...(board.notes ?? []).map((note) => element("p", note)));
  list();
  show();
}

async function look() {
  try {
    const answer = await fetch("board", { cache: "no-store" });
    const news = await answer.json();
    at("away").hidden = true;
    if (news.version !== board.version) {
      board = news;
      draw();
    }
  } catch {
    at("away").hidden = false;
  }
}

async function keepLooking() {
  await look();
  setTimeout(keepLooking, LOOK_AGAIN);
}

choices();
keepLooking();
