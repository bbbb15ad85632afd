// Returns the accessibility problems of the page. It runs in the browser.
() => {
  const problems = [];
  const channel = (value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const parse = (color) => (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((value, i) => a * value + (1 - a) * below[i]);
  const background = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.unshift(parse(getComputedStyle(one).backgroundColor));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return layers.reduce((below, layer) => over(layer, below), dark ? [0, 0, 0] : [255, 255, 255]);
  };
  const visible = (element) => {
    const box = element.getBoundingClientRect();
    return box.width > 1 && box.height > 1 && getComputedStyle(element).visibility === "visible" &&
      !element.closest("details:not([open]) > :not(summary)");
  };
  const named = (element) => `${element.tagName.toLowerCase()}.${element.getAttribute("class") ?? ""} "${element.textContent.trim().slice(0, 30)}"`;

  // Contrast of every visible text.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !visible(element) || element.closest("button[disabled], title, desc, script")) continue;
    const style = getComputedStyle(element);
    const below = background(element);
    const color = over(parse(element.closest("svg") ? style.fill : style.color), below);
    const [light, dark] = [luminance(color), luminance(below)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${named(element)}`);
  }
  // Names of fields, buttons, links and images.
  for (const field of document.querySelectorAll("input:not([type=hidden]), select, textarea")) {
    if (!field.labels?.length && !field.getAttribute("aria-label")) problems.push(`no label: ${field.name}`);
  }
  for (const one of document.querySelectorAll("a, button")) {
    if (!one.textContent.trim() && !one.getAttribute("aria-label")) problems.push(`no name: ${one.outerHTML.slice(0, 80)}`);
  }
  for (const image of document.querySelectorAll("img:not([alt]), svg:not([aria-hidden])")) {
    const text = (image.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent).join("");
    if (!text) problems.push(`no text for an image: ${image.outerHTML.slice(0, 80)}`);
  }
  for (const reference of document.querySelectorAll("[aria-labelledby], [aria-describedby]")) {
    for (const id of `${reference.getAttribute("aria-labelledby") ?? ""} ${reference.getAttribute("aria-describedby") ?? ""}`.trim().split(/\s+/)) {
      if (!document.getElementById(id)) problems.push(`no element has the id ${id}`);
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) problems.push(`id twice: ${id}`);
  // Headings: one h1, no skipped level.
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((heading) => Number(heading.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1 || levels[0] !== 1) problems.push(`headings ${levels}`);
  levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) problems.push(`heading h${level} after h${levels[i - 1]}`); });
  // Tables, language, landmarks.
  for (const table of document.querySelectorAll("table")) {
    if (!table.caption) problems.push("a table without a caption");
    for (const head of table.querySelectorAll("th:not([scope])")) problems.push(`th without scope: ${head.textContent}`);
  }
  if (!document.documentElement.lang) problems.push("no language");
  if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
  if (!document.title) problems.push("no title");
  // Only elements that the keyboard reaches scroll horizontally.
  if (document.documentElement.scrollWidth > document.documentElement.clientWidth) problems.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const one of document.querySelectorAll("main *")) {
    const scrolls = /auto|scroll/.test(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1;
    if (scrolls && one.tabIndex < 0) problems.push(`scrolls, but the keyboard does not reach it: ${named(one)}`);
  }
  // Touch targets on a phone are 44 pixels high, except links in sentences.
  if (innerWidth < 600) {
    for (const one of document.querySelectorAll("nav a, button, .button, select, input:not([type=hidden], [type=checkbox]), summary, .pick label, label.choice, thead a")) {
      const height = one.getBoundingClientRect().height;
      if (visible(one) && height < 43.5) problems.push(`${height.toFixed(0)} pixels high: ${named(one)}`);
    }
  }
  return [...new Set(problems)];
}
