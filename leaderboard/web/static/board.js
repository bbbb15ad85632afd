// Enhancements of the pages. All pages work without JavaScript.
"use strict";

// Shows a tooltip next to the pointer.
function tip(figure, text, x, y) {
  let box = figure.querySelector(".tip");
  if (!text) { box?.remove(); return; }
  if (!box) {
    box = document.createElement("div");
    box.className = "tip";
    box.setAttribute("aria-hidden", "true"); // the tables have the same text
    figure.append(box);
  }
  box.textContent = text;
  const left = Math.min(x + 14, figure.clientWidth - box.offsetWidth);
  box.style.left = `${Math.max(0, left)}px`;
  box.style.top = `${Math.max(0, y - box.offsetHeight - 10)}px`;
}

// Pareto charts: a dot shows a tooltip, links to its submission, and highlights its line of the standings.
function pareto(figure) {
  const root = document.querySelector(".brand").getAttribute("href");
  for (const dot of figure.querySelectorAll("circle[data-submission]")) {
    const title = dot.querySelector("title");
    const text = title.textContent;
    title.remove(); // otherwise the browser shows it as well
    const id = dot.dataset.submission;
    const highlight = (on) => {
      for (const other of document.querySelectorAll(`circle[data-submission="${id}"], tr[data-row="${id}"]`)) {
        other.classList.toggle("lit", on);
      }
    };
    dot.addEventListener("pointermove", (event) => {
      const box = figure.getBoundingClientRect();
      tip(figure, text, event.clientX - box.left, event.clientY - box.top);
      highlight(true);
    });
    dot.addEventListener("pointerleave", () => { tip(figure, ""); highlight(false); });
    dot.addEventListener("click", () => { location.href = `${root}submissions/${id}`; });
  }
}

// Lines of the standings highlight their dots.
function rows() {
  for (const row of document.querySelectorAll("tr[data-row]")) {
    const dots = document.querySelectorAll(`circle[data-submission="${row.dataset.row}"]`);
    if (!dots.length) continue;
    for (const [kind, on] of [["pointerenter", true], ["pointerleave", false], ["focusin", true], ["focusout", false]]) {
      row.addEventListener(kind, () => dots.forEach((dot) => dot.classList.toggle("lit", on)));
    }
  }
}

// Error curves: a tooltip shows the numbers of the tick under the pointer, from the table below the chart.
function curves(figure) {
  const chart = figure.querySelector("svg.chart");
  const heads = [...figure.querySelectorAll("table thead th")].map((cell) => cell.textContent);
  const lines = [...figure.querySelectorAll("table tbody tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  const axis = chart?.querySelector(".axis")?.getBBox();
  if (!axis || lines.length < 2) return;
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");
  chart.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    const number = Math.floor(((at.x - axis.x) / axis.width) * (lines.length - 1)); // an answer stays until the next tick
    const line = lines[number];
    if (!line) { tip(figure, ""); cursor.remove(); return; }
    const x = axis.x + (axis.width * number) / (lines.length - 1);
    cursor.setAttribute("d", `M${x} ${axis.y}v${axis.height}`);
    chart.append(cursor);
    const box = figure.getBoundingClientRect();
    tip(figure, line.map((value, i) => `${heads[i]} ${value}`).join("\n"), event.clientX - box.left, event.clientY - box.top);
  });
  chart.addEventListener("pointerleave", () => { tip(figure, ""); cursor.remove(); });
}

// Comparison: limits the selection to two submissions, and describes it in the bar.
function compare(form) {
  const bar = form.querySelector("[data-compare]");
  const button = bar.querySelector("button");
  const message = bar.querySelector("span");
  let picked = [...form.querySelectorAll("input[name=id]:checked")];
  const show = () => {
    bar.classList.toggle("some", picked.length > 0);
    button.disabled = picked.length !== 2;
    message.textContent = ["Select two submissions.", "One submission is selected. Select another one.", "Two submissions are selected."][picked.length];
  };
  form.addEventListener("change", (event) => {
    const box = event.target;
    if (box.name !== "id") return;
    picked = picked.filter((other) => other !== box);
    if (box.checked) picked.push(box);
    if (picked.length > 2) picked.shift().checked = false; // the first of the three
    show();
  });
  show();
}

// Live pages: reloads the content every data-live seconds, until the page has no such attribute.
function live(main) {
  const seconds = Number(main.dataset.live);
  if (!seconds) return;
  setTimeout(async () => {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok && !document.hidden) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        if (fresh) update(main, fresh);
      }
    } catch { /* the server does not respond; the next reload may succeed */ }
    live(main);
  }, seconds * 1000);
}

// Shows what is new. While the focus is in the content, only its parts change; the last update shows everything.
function update(main, fresh) {
  const ends = !fresh.dataset.live;
  const focus = main.contains(document.activeElement) && document.activeElement !== main ? document.activeElement : null;
  const changed = focus && !ends ? [...fresh.querySelectorAll("[data-part]")] : [fresh];
  for (const part of changed) {
    const name = part.dataset.part ?? "";
    const html = part.innerHTML;
    const old = name ? main.querySelector(`[data-part="${name}"]`) : main;
    if (!old || html === shown.get(name)) continue;
    if (!name) remember(fresh);
    shown.set(name, html);
    old.replaceChildren(...document.adoptNode(part).childNodes);
    enhance(old);
  }
  main.dataset.live = fresh.dataset.live ?? "";
  if (focus && !focus.isConnected) (twin(main, focus) ?? main).focus({ preventScroll: true });
}

// The content of the page and of its parts as the server sent it, without what this script adds.
const shown = new Map();
function remember(main) {
  shown.set("", main.innerHTML);
  for (const part of main.querySelectorAll("[data-part]")) shown.set(part.dataset.part, part.innerHTML);
}

// The element of the new content that an element of the old content was.
function twin(main, element) {
  const attribute = ["id", "href", "name"].find((name) => element.hasAttribute(name));
  return attribute && main.querySelector(`${element.localName}[${attribute}="${CSS.escape(element.getAttribute(attribute))}"]`);
}

// Adds a copy button to blocks of code.
function copies(within) {
  for (const block of within.querySelectorAll(".code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy quiet";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.querySelector("pre").textContent.trim());
        button.textContent = "Copied";
      } catch { button.textContent = "Press Ctrl+C"; }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    block.append(button);
  }
}

function enhance(within) {
  within.querySelectorAll(".charts figure").forEach(pareto);
  within.querySelectorAll("figure[data-curves]").forEach(curves);
  within.querySelectorAll("form.compare-form").forEach(compare);
  copies(within);
  rows();
}

remember(document.querySelector("main"));
enhance(document);
document.querySelector("[role=alert][tabindex]")?.focus();
live(document.querySelector("main"));
