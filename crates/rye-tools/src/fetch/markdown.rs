//! Converts HTML to Markdown.
//!
//! The converter reads tokens and keeps a few counters instead of a tree, because a page can nest
//! its elements so deeply that a recursive converter overflows the stack.

use std::fmt::Write as _;

use html5gum::{DefaultEmitter, EndTag, StartTag, Token, Tokenizer};
use url::Url;

/// Maximum size of the result, in bytes. Long link targets could multiply the size of a page.
const MAX_MARKDOWN: usize = 4 * 1024 * 1024;
/// Maximum number of levels of quotes, lists and spans that are shown.
const MAX_LEVELS: usize = 8;
/// Maximum length of the title, in characters.
const MAX_TITLE: usize = 200;
/// Elements whose content is not text for readers.
const SKIPPED: [&[u8]; 10] = [
    b"script",
    b"style",
    b"noscript",
    b"svg",
    b"template",
    b"iframe",
    b"object",
    b"canvas",
    b"select",
    b"textarea",
];

/// A converted page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Converted {
    /// The page's title.
    pub(super) title: Option<String>,
    /// Its content.
    pub(super) markdown: String,
}

/// Converts a page. Links are resolved against its URL.
pub(super) fn to_markdown(html: &str, base: Option<&Url>) -> Converted {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut writer = Writer {
        base: base.cloned(),
        ..Writer::default()
    };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => writer.start(&tag),
            Token::EndTag(tag) => writer.end(&tag),
            Token::String(text) => writer.text(&String::from_utf8_lossy(&text)),
            _ => {}
        }
        if writer.out.len() > MAX_MARKDOWN {
            break;
        }
    }
    writer.close_link();
    writer.close_code();
    let title = writer.title.map(|title| {
        let words: Vec<_> = title.split_whitespace().collect();
        words.join(" ").chars().take(MAX_TITLE).collect::<String>()
    });
    Converted {
        title: title.filter(|title| !title.is_empty()),
        markdown: writer.out.trim().to_owned() + "\n",
    }
}

/// Writes Markdown from tags and text.
#[derive(Default)]
struct Writer {
    out: String,
    base: Option<Url>,
    title: Option<String>,
    in_title: bool,
    /// The element whose content is skipped, and how often it is nested in itself.
    skipped: Option<(Vec<u8>, usize)>,
    /// Line breaks to write before the next text.
    line_breaks: usize,
    /// Whether white space precedes the next text.
    space: bool,
    /// What starts the next line: `- `, `## `.
    marker: Option<String>,
    quotes: usize,
    /// How many quotes the last text was in.
    last_quotes: usize,
    /// Marks of the open spans.
    spans: Vec<&'static str>,
    /// The next number of each open list; none if it has bullets.
    lists: Vec<Option<usize>>,
    in_code_block: bool,
    /// Target and start in `out` of an open link.
    link: Option<(String, usize)>,
    table: Option<Table>,
}

/// The open table. A nested one is part of its cell.
#[derive(Default)]
struct Table {
    nested: usize,
    rows: usize,
    cells: usize,
}

impl Writer {
    fn start(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        if let Some((skipped, depth)) = &mut self.skipped {
            *depth += usize::from(skipped == name && !tag.self_closing);
            return;
        }
        if SKIPPED.contains(&name) && !tag.self_closing {
            self.skipped = Some((name.to_vec(), 1));
            return;
        }
        match name {
            b"title" => self.in_title = self.title.is_none(),
            b"base" => self.set_base(tag),
            b"br" => self.break_line(1),
            b"hr" => self.rule(),
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.break_line(2);
                let level = name.get(1).map_or(1, |digit| usize::from(digit - b'0'));
                self.marker = Some(format!("{} ", "#".repeat(level)));
            }
            b"ul" => self.start_list(None),
            b"ol" => {
                let first = attribute(tag, b"start").and_then(|it| it.parse().ok());
                self.start_list(Some(first.unwrap_or(1)));
            }
            b"li" => self.start_item(),
            b"dd" => {
                self.break_line(1);
                self.marker = Some(": ".to_owned());
            }
            b"blockquote" => {
                self.break_line(2);
                self.quotes += 1;
            }
            b"pre" => self.start_code_block(),
            b"code" | b"kbd" | b"samp" | b"tt" if !self.in_code_block => self.open("`"),
            b"strong" | b"b" if !self.in_code_block => self.open("**"),
            b"em" | b"i" if !self.in_code_block => self.open("*"),
            b"a" => self.start_link(tag),
            b"img" => self.image(tag),
            b"table" | b"tr" | b"td" | b"th" => self.start_table_part(name),
            _ => self.break_line(breaks_around(name)),
        }
    }

    fn end(&mut self, tag: &EndTag<()>) {
        let name: &[u8] = &tag.name;
        if let Some((skipped, depth)) = &mut self.skipped {
            if skipped == name {
                *depth -= 1;
                if *depth == 0 {
                    self.skipped = None;
                }
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.marker = None;
                self.break_line(2);
            }
            b"ul" | b"ol" => {
                self.lists.pop();
                self.marker = None;
                self.break_line(if self.lists.is_empty() { 2 } else { 1 });
            }
            b"blockquote" => {
                self.quotes = self.quotes.saturating_sub(1);
                self.break_line(2);
            }
            b"pre" => self.close_code(),
            b"code" | b"kbd" | b"samp" | b"tt" if !self.in_code_block => self.close("`"),
            b"strong" | b"b" if !self.in_code_block => self.close("**"),
            b"em" | b"i" if !self.in_code_block => self.close("*"),
            b"a" => self.close_link(),
            b"table" | b"tr" => self.end_table_part(name),
            _ => self.break_line(breaks_around(name)),
        }
    }

    fn text(&mut self, text: &str) {
        if self.skipped.is_some() {
            return;
        }
        if self.in_title {
            self.title.get_or_insert_default().push_str(text);
            return;
        }
        if self.in_code_block {
            self.out.push_str(text);
            return;
        }
        for character in text.chars() {
            if character.is_whitespace() {
                self.space = true;
            } else {
                self.flush();
                self.out.push(character);
            }
        }
    }

    /// Writes the white space and the markers that precede the next text.
    fn flush(&mut self) {
        let at_start = self.out.is_empty();
        if at_start || self.line_breaks > 0 {
            if !at_start {
                let quotes = self.quotes.min(self.last_quotes);
                let quote = "> ".repeat(quotes.min(MAX_LEVELS));
                for number in 0..self.line_breaks {
                    let end = self.out.trim_end_matches(' ').len();
                    self.out.truncate(end);
                    self.out.push('\n');
                    if number + 1 < self.line_breaks {
                        self.out.push_str(quote.trim_end());
                    }
                }
            }
            self.out.push_str(&"> ".repeat(self.quotes.min(MAX_LEVELS)));
            let levels = self.lists.len().min(MAX_LEVELS);
            let is_item = self.marker.is_some();
            self.out
                .push_str(&"  ".repeat(levels.saturating_sub(usize::from(is_item))));
        } else if self.space && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
        if let Some(marker) = self.marker.take() {
            self.out.push_str(&marker);
        }
        self.line_breaks = 0;
        self.space = false;
        self.last_quotes = self.quotes;
    }

    /// Starts the next text on another line. A cell of a table has one line.
    fn break_line(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.space = true;
        if self.table.is_none() {
            self.line_breaks = self.line_breaks.max(count);
        }
    }

    fn rule(&mut self) {
        self.break_line(2);
        self.flush();
        self.out.push_str("---");
        self.break_line(2);
    }

    fn start_list(&mut self, next: Option<usize>) {
        self.break_line(if self.lists.is_empty() { 2 } else { 1 });
        self.lists.push(next);
    }

    fn start_item(&mut self) {
        self.break_line(1);
        let marker = match self.lists.last_mut() {
            Some(Some(next)) => {
                let marker = format!("{next}. ");
                *next = next.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        self.marker = Some(marker);
    }

    fn start_code_block(&mut self) {
        if self.in_code_block || self.table.is_some() {
            return;
        }
        self.break_line(2);
        self.flush();
        self.out.push_str("```\n");
        self.in_code_block = true;
    }

    fn close_code(&mut self) {
        if !self.in_code_block {
            return;
        }
        self.in_code_block = false;
        if !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        self.out.push_str("```");
        self.break_line(2);
    }

    /// Opens a span such as `**`.
    fn open(&mut self, mark: &'static str) {
        if self.spans.len() < MAX_LEVELS {
            self.flush();
            self.out.push_str(mark);
            self.spans.push(mark);
        }
    }

    /// Closes a span. An empty one leaves no marks.
    fn close(&mut self, mark: &str) {
        let Some(open) = self.spans.iter().rposition(|it| *it == mark) else {
            return;
        };
        self.spans.remove(open);
        match self.out.strip_suffix(mark) {
            Some(rest) => self.out.truncate(rest.len()),
            None => self.out.push_str(mark),
        }
    }

    fn set_base(&mut self, tag: &StartTag<()>) {
        let target = attribute(tag, b"href");
        let resolved = target.and_then(|it| self.resolve(&it));
        let parsed = resolved.and_then(|it| Url::parse(&it).ok());
        self.base = parsed.or(self.base.take());
    }

    /// The absolute URL of a link; `None` if it leads nowhere else.
    fn resolve(&self, target: &str) -> Option<String> {
        if target.is_empty() || target.starts_with('#') {
            return None;
        }
        let url = match &self.base {
            Some(base) => base.join(target).ok()?,
            None => Url::parse(target).ok()?,
        };
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.into())
    }

    fn start_link(&mut self, tag: &StartTag<()>) {
        // Links do not nest.
        self.close_link();
        let target = attribute(tag, b"href").and_then(|it| self.resolve(&it));
        if let Some(target) = target
            && !self.in_code_block
        {
            self.flush();
            self.link = Some((target, self.out.len()));
        }
    }

    fn close_link(&mut self) {
        let Some((target, start)) = self.link.take() else {
            return;
        };
        let text = self.out.get(start..).unwrap_or_default().trim();
        if !text.is_empty() {
            let link = format!("[{text}]({target})");
            self.out.truncate(start);
            self.out.push_str(&link);
        }
    }

    fn image(&mut self, tag: &StartTag<()>) {
        let alt = attribute(tag, b"alt").unwrap_or_default();
        let source = attribute(tag, b"src").and_then(|it| self.resolve(&it));
        if let Some(source) = source
            && !alt.trim().is_empty()
            && !self.in_code_block
        {
            self.flush();
            let _ = write!(self.out, "![{}]({source})", alt.trim());
        }
    }

    fn start_table_part(&mut self, name: &[u8]) {
        match (&mut self.table, name) {
            (None, b"table") => {
                self.break_line(2);
                self.table = Some(Table::default());
            }
            (Some(table), b"table") => table.nested += 1,
            (
                Some(Table {
                    nested: 0, rows, ..
                }),
                b"tr",
            ) if *rows == 0 => self.flush(),
            (Some(Table { nested: 0, .. }), b"tr") => {
                self.line_breaks = 1;
                self.flush();
            }
            (Some(table), b"td" | b"th") if table.nested == 0 => {
                table.cells += 1;
                let is_first = table.cells == 1;
                self.out.push_str(if is_first { "| " } else { " | " });
                self.space = false;
            }
            _ => self.break_line(1),
        }
    }

    fn end_table_part(&mut self, name: &[u8]) {
        let Some(table) = &mut self.table else {
            return self.break_line(1);
        };
        if table.nested > 0 {
            table.nested -= usize::from(name == b"table");
            return;
        }
        if name == b"table" {
            self.table = None;
            self.break_line(2);
            return;
        }
        let cells = std::mem::take(&mut table.cells);
        if cells == 0 {
            return;
        }
        table.rows += 1;
        self.out.push_str(" |");
        if table.rows == 1 {
            let _ = write!(self.out, "\n|{}", " --- |".repeat(cells.min(64)));
        }
        self.space = false;
    }
}

/// Line breaks before and after an element.
fn breaks_around(name: &[u8]) -> usize {
    match name {
        b"p" | b"dl" | b"figure" => 2,
        b"div" | b"section" | b"article" | b"header" | b"footer" | b"main" | b"aside" | b"nav"
        | b"form" | b"fieldset" | b"details" | b"summary" | b"figcaption" | b"address" | b"dt"
        | b"dd" | b"li" | b"caption" | b"option" | b"body" => 1,
        _ => 0,
    }
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    let value = tag.attributes.get(name)?;
    Some(String::from_utf8_lossy(value).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn markdown(html: &str) -> String {
        let base = Url::parse("https://docs.example/a/b").unwrap();
        to_markdown(html, Some(&base)).markdown
    }

    #[test]
    fn page_becomes_markdown() {
        let html = r##"<!DOCTYPE html><html><head><title> The
            &amp; title </title><style>p { color: red }</style>
            <script>if (a < b) { document.write("<p>no</p>") }</script></head>
            <body><nav><a href="/">Home</a> <a href="#top">Top</a></nav>
            <h1>A <em>title</em></h1>
            <p>One <b>bold</b>
            word, <code>a &lt; b</code> and a <a href="../c?d=1">link</a>.<br>Next.</p>
            <ul><li>first<ul><li>inner</li></ul></li><li>second</ul>
            <ol start="3"><li>three</li><li>four</li></ol>
            <blockquote><p>Quoted</p><p>twice</p></blockquote>
            <pre><code class="rust">fn main() {
    println!("&lt;&gt;");
}
</code></pre>
            <table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td><p>2</p></td></tr></table>
            <img src="x.png" alt="A picture"><img src="data:image/png;base64,x" alt="inline">
            <hr>end<b></b></body></html>"##;
        let base = Url::parse("https://docs.example/a/b").unwrap();
        let converted = to_markdown(html, Some(&base));
        assert_eq!(converted.title.as_deref(), Some("The & title"));
        let expected = "\
[Home](https://docs.example/) Top

# A *title*

One **bold** word, `a < b` and a [link](https://docs.example/c?d=1).
Next.

- first
  - inner
- second

3. three
4. four

> Quoted
>
> twice

```
fn main() {
    println!(\"<>\");
}
```

| A | B |
| --- | --- |
| 1 | 2 |

![A picture](https://docs.example/a/x.png)

---

end
";
        assert_eq!(converted.markdown, expected);
    }

    #[test]
    fn broken_html_is_converted_all_the_same() {
        for (html, expected) in [
            ("", "\n"),
            ("plain & simple", "plain & simple\n"),
            ("<p>a<p>b", "a\n\nb\n"),
            ("</b></a></td></ul>x", "x\n"),
            ("<a href=/x>open", "[open](https://docs.example/x)\n"),
            ("<a href=javascript:alert(1)>no</a>", "no\n"),
            ("<pre>open", "```\nopen\n```\n"),
            ("<script>never closed <p>x", "\n"),
            ("a<!-- comment -->b &nbsp; &unknown; c", "ab &unknown; c\n"),
        ] {
            assert_eq!(markdown(html), expected, "{html}");
        }
    }

    #[test]
    fn hostile_nesting_takes_neither_stack_nor_time() {
        let start = Instant::now();
        for tag in [
            "div",
            "blockquote",
            "ul",
            "a href=/x",
            "b",
            "table",
            "td",
            "svg",
        ] {
            let html = format!("<{tag}>").repeat(20_000) + &"x<br>".repeat(20_000);
            let length = markdown(&html).len();
            assert!(length <= MAX_MARKDOWN + 1024, "{tag}: {length}");
        }
        assert!(start.elapsed() < Duration::from_mins(1));
    }
}
