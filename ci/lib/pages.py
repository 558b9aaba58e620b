"""See ci/pages.sh: opens pages in a browser, and says what is wrong with them.

    pages.py [--pictures FOLDER] HOSTILE PAGE...

HOSTILE is a text that each page has to show as it is.
"""

import pathlib
import sys

from browser import Browser

WIDTHS = [360, 800, 1400]

# Lists in sentences what is wrong with a page, apart from its looks.
STRUCTURE = r"""
(hostile => {
  const wrong = [], all = selector => [...document.querySelectorAll(selector)];
  const expect = (is, what) => { if (!is) wrong.push(what); };
  expect(document.documentElement.lang, 'the page has no language');
  expect(document.title, 'the page has no title');
  expect(all('h1').length == 1, 'the page has not one first heading');
  expect(!all('script, iframe, object, embed, link, img, base').length, 'something is active');
  expect(all('*').every(e => ![...e.attributes].some(a => /^on/.test(a.name))), 'a handler');
  expect(document.body.textContent.includes(hostile), `${hostile} is not shown`);
  expect(window.hostile === undefined, 'a text has run');
  let level = 1;
  for (const heading of all('h1, h2, h3, h4')) {
    const own = +heading.tagName[1];
    expect(own <= level + 1, `${heading.textContent}: a level of headings is left out`);
    level = own;
  }
  expect(all('table').length, 'the page has no table');
  for (const table of all('table')) {
    const caption = table.caption?.textContent.trim();
    expect(caption, 'a table has no caption');
    expect([...table.querySelectorAll('th')].every(th => th.scope), `${caption}: no scope`);
    expect([...table.tBodies[0].rows].every(row => row.cells[0].tagName == 'TH'),
      `${caption}: a row has no heading`);
    const width = row => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);
    const first = width(table.tHead.rows[0]);
    expect([...table.tBodies[0].rows].every(row => width(row) == first),
      `${caption}: a row has more or fewer cells than there are headings`);
  }
  expect(all('svg').length, 'the page has no picture');
  for (const svg of all('svg')) {
    expect(svg.getAttribute('role') == 'img', 'a picture has no role');
    expect(svg.querySelector(':scope > title')?.textContent, 'a picture has no title');
    expect(svg.querySelector(':scope > desc')?.textContent, 'a picture has no description');
    expect(svg.closest('figure')?.querySelector('figcaption'), 'a picture has no caption');
  }
  const ids = all('[id]').map(e => e.id);
  expect(new Set(ids).size == ids.length, 'two elements have the same name');
  const named = all('[aria-labelledby], [aria-describedby]').flatMap(e =>
    [e.getAttribute('aria-labelledby'), e.getAttribute('aria-describedby')].filter(id => id));
  expect(named.every(id => document.getElementById(id)), 'a name leads nowhere');
  return wrong;
})
"""

# Lists what is wrong with the looks of a page.
LOOKS = r"""
(() => {
  const wrong = [], root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    wrong.push(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth} px`);
  const parts = colour => colour.match(/[\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const tell = (e, ratio) => wrong.push(
    `${e.tagName} "${e.textContent.slice(0, 40)}": contrast ${ratio.toFixed(2)}, not 4.5`);
  for (const e of document.querySelectorAll('h1, h2, h3, h4, p, li, th, td, caption, pre, code, '
      + 'figcaption, summary')) {
    const ratio = contrast(getComputedStyle(e).color, ground(e));
    if (ratio < 4.5) tell(e, ratio);
  }
  for (const svg of document.querySelectorAll('svg')) {
    const below = svg.querySelector('rect');
    const paper = below ? getComputedStyle(below).fill : ground(svg);
    // Black texts stand on colours of their own.
    for (const e of svg.querySelectorAll('text:not([fill="#000000"], [fill="#FFFFFF"])')) {
      const ratio = contrast(getComputedStyle(e).fill, paper);
      if (ratio < 4.5) tell(e, ratio);
    }
  }
  return [...new Set(wrong)];
})()
"""


def check(browser, path, hostile, pictures):
    """What is wrong with a page, and where."""
    views = [(width, scheme, "screen") for width in WIDTHS for scheme in ["light", "dark"]]
    # The width of a sheet of A4 without its margins.
    views.append((718, "light", "print"))
    for width, scheme, media in views:
        page = browser.open(path, width=width, scheme=scheme, media=media)
        where = f"{path.name}, {width} px, {scheme}, {media}"
        found = page.evaluate(f"({STRUCTURE})({hostile!r})") + page.evaluate(LOOKS)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        if (dark == "rgb(255, 255, 255)") == (scheme == "dark"):
            found.append(f"the ground is {dark}")
        requests = [event["request"]["url"] for event in page.happened("Network.requestWillBeSent")]
        found += [f"it asks for {url}" for url in requests[1:]]
        for kind in ["Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"]:
            found += [f"{kind}: {event}" for event in page.happened(kind)]
        if pictures:
            page.picture(pictures / f"{path.stem}-{width}-{scheme}-{media}.png")
        page.close()
        yield from (f"{where}: {what}" for what in found)


def main():
    words = sys.argv[1:]
    pictures = None
    if words[0] == "--pictures":
        pictures = pathlib.Path(words[1])
        words = words[2:]
    hostile, *paths = words
    with Browser() as browser:
        wrong = [what for path in map(pathlib.Path, paths)
                 for what in check(browser, path, hostile, pictures)]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(paths)} pages, each in {2 * len(WIDTHS) + 1} windows: nothing is wrong")


if __name__ == "__main__":
    main()
