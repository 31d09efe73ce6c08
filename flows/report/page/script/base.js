// Elements and small things that every part uses. Text only ever becomes text nodes: no part parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Control characters and marks that turn the direction of writing, in names from files, as escapes. */
const UNSEEN = /(?!\n)[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const visible = (text) => String(text).replace(UNSEEN, escaped);

/** As Python writes it: \x1b, \u202e, \U000e0001. */
function escaped(char) {
  const hex = char.codePointAt(0).toString(16);
  const [letter, digits] = hex.length < 3 ? ["x", 2] : hex.length < 5 ? ["u", 4] : ["U", 8];
  return `\\${letter}${hex.padStart(digits, "0")}`;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : visible(value));
  }
  const shown = children.flat(9).filter((child) => child !== null && child !== undefined && child !== "");
  element.append(...shown.map((child) => (child instanceof Node ? child : visible(child))));
  return element;
}

/** An HTML element; `css` is an object of style properties, `on...` attributes are listeners. */
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Cells of tables; a `figure` stands to the right.
const tr = (...cells) => make("tr", {}, cells);
const td = (...children) => make("td", {}, children);
const figure = (...children) => make("td", { class: "number" }, children);
const head = (...children) => make("th", { scope: "col" }, children);
const figureHead = (...children) => make("th", { scope: "col", class: "number" }, children);
const rowHead = (doc, ...children) => make("th", { scope: "row", title: doc }, children);

/** A table that is read, not worked with. */
const plainTable = (attributes, heads, lines) =>
  make("table", { class: "plain", ...attributes }, make("thead", {}, tr(heads)), make("tbody", {}, lines));

const byId = (id) => document.getElementById(id);

/** Tells a screen reader. */
function say(text) {
  byId("said").textContent = visible(text);
}

/** The function, run once per frame however often it is asked for. */
function perFrame(run) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      run();
    });
  };
}

/** The colour of a style's variable in the theme that is on, as canvas takes it. */
function colourOf(variable) {
  const probe = byId("said");
  probe.style.color = `var(${variable})`;
  return getComputedStyle(probe).color;
}

/** Offers a text as a file. */
function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const button = (label, onclick, attributes = {}) =>
  make("button", { type: "button", class: "small", onclick, ...attributes }, label);

/** A menu that hands over the value of what is chosen. */
const menu = (id, label, options, change) =>
  make("label", {}, label, make("select", { id, onchange: (event) => change(event.target.value) }, options));

const option = (value, text, chosen) => make("option", { value, selected: value === chosen }, text);

const tip = {
  show(x, y, children) {
    const box = byId("tip");
    box.replaceChildren(...children);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - height - 4))}px`;
  },
  hide() {
    byId("tip").hidden = true;
  },
};
