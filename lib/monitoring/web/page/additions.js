// Pages and parts that another package adds: its module is loaded before main.js, and calls these.

const pages = [];
export const sections = [];
export const panels = [];

// A page that is shown where the address has `name`; a class as RunPage is.
export const addPage = (name, Page) => pages.push([name, Page]);

// A part of the first page, above its table: a class with `element` and `onRows`.
export const addSection = (Section) => sections.push(Section);

// A part of the differences between runs: an async function of their ids that returns an element, or null.
export const addDifferences = (make) => panels.push(make);

export const pageOf = (view) => pages.find(([name]) => view[name]);
