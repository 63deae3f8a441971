"use strict";
/* Renders Markdown and LaTeX with marked and KaTeX, which are unpacked when a text needs them.
   Texts become elements one by one and are never parsed as HTML; links, pictures and malformed
   markup are shown as source. */

const HAS_MARKUP = /\\[([]|\$|`|\*\*|^ {0,3}(#{1,6}|[-*+]|\d+[.)]|>|\|) ?\S/m;
const LONGEST_MARKUP = 20_000; // marked takes seconds for ten times as many signs in a row
const DISPLAYED = [/^\$\$([^$]+?)\$\$/, /^\\\[([\s\S]{1,2000}?)\\\]/];
const INLINE = [/^\\\(([\s\S]{1,2000}?)\\\)/, /^\$(?!\s)([^$\n]+?)(?<![\s\\])\$(?!\d)/]; // not "$5 and $6"
const KEPT_ESCAPES = /[^$*_#`]/; // of LaTeX without its signs, such as 12\,345 and \{1, 2\}
let markdown;

function needsMarkup(thread) {
  return [thread.question, ...thread.turns.map((turn) => turn.text)].some((text) => HAS_MARKUP.test(text));
}

/** Load both libraries, once. */
async function loadMarkup() {
  if (markdown) return;
  for (const source of await unpack(at("page-libraries").textContent)) {
    document.head.append(make("script", { textContent: source }));
  }
  markdown = new marked.Marked({ gfm: true, breaks: true });
  markdown.use({ extensions: [mathExtension("block", DISPLAYED), mathExtension("inline", [...DISPLAYED, ...INLINE])] });
}

/** The extension by which marked leaves formulas alone. */
function mathExtension(level, patterns) {
  const begins = level === "block" ? /\n(?=\$\$[^$]|\\\[)/ : /\$\$?[^$]|\\[([]/;
  return {
    level,
    name: `${level} math`,
    start: (text) => begins.exec(text)?.index,
    tokenizer: (text) => {
      const match = patterns.map((pattern) => pattern.exec(text)).find(Boolean);
      return match && { type: "math", raw: match[0], tex: match[1], displayed: DISPLAYED.some((pattern) => pattern.test(match[0])) };
    },
  };
}

/** A text with its markup rendered, unless it has none or too much. */
function formatted(text) {
  if (!markdown || text.length > LONGEST_MARKUP || !HAS_MARKUP.test(text)) return make("pre", {}, text);
  try {
    return make("div", { className: "formatted" }, ...elementsOf(markdown.lexer(text)));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error; // quotes within quotes, by the thousand
    return make("pre", {}, text);
  }
}

function elementsOf(tokens) {
  return tokens.map(elementOf).filter((element) => element !== null);
}

/** The element of a token, or its source. */
function elementOf(token) {
  const inside = () => elementsOf(token.tokens ?? []);
  switch (token.type) {
    case "space": return null;
    case "paragraph": return make("p", {}, ...inside());
    case "heading": return make("p", { className: "heading" }, ...inside());
    case "blockquote": return make("blockquote", {}, ...inside());
    case "code": return make("pre", {}, token.text);
    case "codespan": return make("code", {}, token.text);
    case "strong": return make("strong", {}, ...inside());
    case "em": return make("em", {}, token.raw); // with its signs, which may be those of 2*3*4
    case "br": return make("br");
    case "hr": return make("hr");
    case "escape": return KEPT_ESCAPES.test(token.text) ? token.raw : token.text;
    case "text": return token.tokens ? make("span", {}, ...inside()) : token.raw;
    case "list": return listElement(token);
    case "table": return markupTable(token);
    case "math": return mathElement(token);
    default: return token.raw;
  }
}

function listElement({ ordered, start, items }) {
  const list = make(ordered ? "ol" : "ul", {}, ...items.map((item) => make("li", {}, ...elementsOf(item.tokens))));
  if (ordered && start !== "") list.start = start;
  return list;
}

function markupTable({ header, rows }) {
  const line = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, ...elementsOf(cell.tokens))));
  return make("table", {}, line("th", header), ...rows.map((row) => line("td", row)));
}

/** A formula as MathML, which needs no fonts, or its source if it is malformed. */
function mathElement({ raw, tex, displayed }) {
  const element = make("span", {});
  try {
    katex.render(tex, element, { displayMode: displayed, output: "mathml", strict: "ignore", trust: false, maxSize: 20 });
  } catch (error) {
    if (!(error instanceof katex.ParseError)) throw error;
    return make("code", { title: error.message }, raw);
  }
  return element;
}
