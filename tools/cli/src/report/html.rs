//! A report as one page that needs no script, no font and no other file. Tables scroll in boxes of
//! their own, so that the page is as wide as its window. The pictures are the same as those of
//! `--plot`. [`plot`] draws them for a white ground; on a dark one their brightness is inverted.
//!
//! All text goes through [`escaped`]: names of locks and functions and command lines come from
//! programs, which may be hostile.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::ops::Range;

use super::plot::{self, Area, Drawn};
use super::table::Table;
use super::text::{NOT_SHOWN, is_shown};

/// Text escaped for an element or a quoted attribute, so that none of it acts as markup.
pub fn escaped(text: &str) -> String {
    let mut markup = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => markup += "&amp;",
            '<' => markup += "&lt;",
            '>' => markup += "&gt;",
            '"' => markup += "&quot;",
            '\'' => markup += "&#39;",
            '\n' | '\t' => markup.push(c),
            c if is_shown(c) => markup.push(c),
            _ => markup.push(NOT_SHOWN),
        }
    }
    markup
}

/// A picture with a description for readers who do not see it.
pub struct Picture {
    pub title: String,
    /// What it shows, and how to read it: its caption.
    pub about: String,
    svg: String,
    width: u32,
}

impl Picture {
    /// Draws a picture of that width and height.
    pub fn draw(
        title: impl Into<String>,
        about: impl Into<String>,
        size: (u32, u32),
        draw: impl FnOnce(&Area) -> Drawn,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            title: title.into(),
            about: about.into(),
            svg: plot::svg(size, draw)?,
            width: size.0,
        })
    }
}

/// A page under construction, from top to bottom.
pub struct Page {
    title: String,
    body: String,
    /// The number of elements to which other elements refer by ID.
    names: usize,
}

impl Page {
    /// A page with this title, which is its first heading too.
    pub fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            body: String::new(),
            names: 0,
        }
    }

    fn add(&mut self, markup: fmt::Arguments) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{markup}");
    }

    /// A heading: 2 for a part of the page, 3 and 4 for parts of that.
    pub fn heading(&mut self, level: u8, text: &str) {
        let level = level.clamp(2, 4);
        self.add(format_args!("<h{level}>{}</h{level}>", escaped(text)));
    }

    /// A paragraph, with the line breaks of the text, unless it is empty.
    pub fn paragraph(&mut self, text: &str) {
        if !text.is_empty() {
            self.add(format_args!("<p>{}</p>", escaped(text)));
        }
    }

    pub fn command(&mut self, words: &[String]) {
        let line = words.join(" ");
        self.add(format_args!(
            "<p class=\"command\"><code>{}</code></p>",
            escaped(&line)
        ));
    }

    /// A list, unless it is empty.
    pub fn list<T: AsRef<str>>(&mut self, items: impl IntoIterator<Item = T>) {
        let mut markup = String::new();
        for item in items {
            let _ = write!(markup, "<li>{}</li>", escaped(item.as_ref()));
        }
        if !markup.is_empty() {
            self.add(format_args!("<ul>{markup}</ul>"));
        }
    }

    /// What to keep in mind, as a list.
    pub fn notes(&mut self, warnings: &[String]) {
        self.list(warnings.iter().map(|warning| format!("Note: {warning}")));
    }

    /// Preformatted lines, unless there are none.
    pub fn lines(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.add(format_args!("<pre>{}</pre>", escaped(text.trim_end())));
        }
    }

    /// A table with a caption. The first column names the rows; the columns `right` are aligned at
    /// the right. A heading that begins with a line break belongs to the group that an earlier
    /// heading's first line names.
    pub fn table(&mut self, caption: &str, table: &Table, right: Range<usize>) {
        self.names += 1;
        let name = format!("table-{}", self.names);
        let mut markup = format!(
            "<div class=\"box\" role=\"region\" tabindex=\"0\" aria-labelledby=\"{name}\"><table>\
             <caption id=\"{name}\"><span>{}</span></caption>\n",
            escaped(caption)
        );
        head(&mut markup, &table.headings, &right);
        markup += "<tbody>\n";
        for row in &table.rows {
            markup += "<tr>";
            for (column, text) in row.iter().enumerate() {
                let text = escaped(text.trim());
                let _ = match column {
                    0 => write!(markup, "<th scope=\"row\">{text}</th>"),
                    _ => write!(markup, "<td{}>{text}</td>", class(right.contains(&column))),
                };
            }
            markup += "</tr>\n";
        }
        self.add(format_args!("{markup}</tbody></table></div>"));
    }

    /// A picture with its caption. It is the SVG of the picture's file, with a name, scaled to the
    /// width of the page.
    pub fn picture(&mut self, picture: &Picture) {
        self.names += 1;
        let name = format!("picture-{}", self.names);
        let svg = picture.svg.trim();
        let begin = svg.find('>').map_or(0, |at| at + 1);
        let (element, rest) = svg.split_at(begin);
        let element = element.trim_end_matches('>');
        let (title, about) = (escaped(&picture.title), escaped(&picture.about));
        // Below 70 % of its width a picture cannot be read, so it scrolls instead.
        let least = picture.width * 7 / 10;
        self.add(format_args!(
            "<figure><figcaption id=\"{name}-about\"><b>{title}.</b> {about}</figcaption>\
             <div class=\"box\" role=\"region\" tabindex=\"0\" aria-labelledby=\"{name}\">\
             {element} role=\"img\" aria-labelledby=\"{name}\" aria-describedby=\"{name}-text\" \
             style=\"min-width:{least}px;max-width:{}px\">\
             <title id=\"{name}\">{title}</title><desc id=\"{name}-text\">{about}</desc>\
             {rest}</div></figure>",
            picture.width
        ));
    }

    /// Hides what `more` adds until the reader unfolds it.
    pub fn folded(&mut self, summary: &str, more: impl FnOnce(&mut Self)) {
        self.add(format_args!(
            "<details><summary>{}</summary>",
            escaped(summary)
        ));
        more(self);
        self.add(format_args!("</details>"));
    }

    /// Writes the page.
    pub fn write(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let title = escaped(&self.title);
        // With this policy nothing runs or is fetched even if a text gets through as markup.
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"generator\" content=\"kinlock {}\">\n\
             <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
            crate::VERSION,
            include_str!("html.css"),
            self.body,
        )?;
        Ok(())
    }
}

fn class(is_number: bool) -> &'static str {
    if is_number { " class=\"n\"" } else { "" }
}

/// The headings, in two rows if some of them are in groups.
fn head(markup: &mut String, headings: &[String], right: &Range<usize>) {
    let follows = |column: usize| {
        let heading = headings.get(column);
        heading.is_some_and(|heading| heading.starts_with('\n'))
    };
    let has_groups = (0..headings.len()).any(follows);
    let (mut first, mut second) = (String::new(), String::new());
    let mut column = 0;
    while column < headings.len() {
        let members = 1 + (column + 1..).take_while(|&next| follows(next)).count();
        let heading = &headings[column];
        match heading.split_once('\n') {
            Some((group, own)) if members > 1 => {
                let _ = write!(
                    first,
                    "<th scope=\"colgroup\" colspan=\"{members}\" class=\"g\">{}</th>",
                    escaped(group)
                );
                let others = headings[column + 1..column + members].iter();
                let others = others.map(|heading| heading.trim_start());
                for (place, text) in [own].into_iter().chain(others).enumerate() {
                    let class = class(right.contains(&(column + place)));
                    let _ = write!(second, "<th scope=\"col\"{class}>{}</th>", escaped(text));
                }
            }
            _ => {
                let rows = if has_groups { " rowspan=\"2\"" } else { "" };
                let text = heading.replace('\n', " ");
                let class = class(right.contains(&column));
                let _ = write!(
                    first,
                    "<th scope=\"col\"{rows}{class}>{}</th>",
                    escaped(text.trim())
                );
            }
        }
        column += members;
    }
    let _ = writeln!(markup, "<thead><tr>{first}</tr>");
    if has_groups {
        let _ = writeln!(markup, "<tr>{second}</tr>");
    }
    *markup += "</thead>\n";
}

#[cfg(test)]
mod tests {
    use super::plot::elements::Text;
    use super::*;

    const HOSTILE: &str = "</td><script>alert('1')</script>&\"\u{202e}\x1b[2J";
    const HARMLESS: &str = "&lt;/td&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\
                            \u{fffd}\u{fffd}[2J";

    fn text(page: &Page) -> String {
        let mut out = Vec::new();
        page.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_text_is_markup() {
        assert_eq!(escaped(HOSTILE), HARMLESS);
        let hostile = HOSTILE.to_owned();
        let mut page = Page::new(HOSTILE);
        page.heading(2, HOSTILE);
        page.paragraph(HOSTILE);
        page.command(std::slice::from_ref(&hostile));
        page.list([HOSTILE]);
        page.lines(HOSTILE);
        let table = Table {
            headings: vec![hostile.clone(), hostile.clone()],
            rows: vec![vec![hostile.clone(), hostile.clone()]],
        };
        page.table(HOSTILE, &table, 1..2);
        page.folded(HOSTILE, |page| page.paragraph(HOSTILE));
        let picture = Picture::draw(HOSTILE, HOSTILE, (200, 100), |area| {
            let style = crate::report::plot::text(13);
            area.draw(&Text::new(HOSTILE.to_owned(), (0, 0), style))?;
            Ok(())
        });
        page.picture(&picture.unwrap());
        let text = text(&page);
        assert!(!text.contains("<script"), "{text}");
        // The title, and the picture's title and text, occur twice each.
        assert_eq!(text.matches(HARMLESS).count(), 2 + 5 + 5 + 2 + 4);
    }

    #[test]
    fn headings_in_groups_take_two_rows() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let table = Table {
            headings: words(&["lock", "changed\nowner", "wait\ntotal", "\nmax"]),
            rows: vec![words(&["a", "1", "2", "3"])],
        };
        let mut page = Page::new("title");
        page.table("caption", &table, 1..4);
        let text = text(&page);
        for expected in [
            "<th scope=\"col\" rowspan=\"2\">lock</th>",
            "<th scope=\"col\" rowspan=\"2\" class=\"n\">changed owner</th>",
            "<th scope=\"colgroup\" colspan=\"2\" class=\"g\">wait</th></tr>",
            "<tr><th scope=\"col\" class=\"n\">total</th><th scope=\"col\" class=\"n\">max</th>",
            "<th scope=\"row\">a</th><td class=\"n\">1</td>",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
