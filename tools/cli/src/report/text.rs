//! Text that other programs chose: names of processes, threads, files and functions. It goes to
//! terminals, into lines that tools read, and into pages, and must have no effect there.

use std::borrow::Cow;

/// Replaces a character that is not shown.
pub const NOT_SHOWN: char = '\u{fffd}';

/// Whether a character is shown. Control characters command a terminal and end lines; direction
/// marks change the order of what follows.
pub fn is_shown(c: char) -> bool {
    let is_direction = matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !is_direction && !matches!(c, '\u{2028}' | '\u{2029}')
}

/// A name as text in one line. Bytes that are no UTF-8, and characters that are not
/// [shown](is_shown), are replaced.
pub fn name(bytes: &[u8]) -> String {
    replaced(&String::from_utf8_lossy(bytes), is_shown)
}

/// Several lines that contain such names.
pub fn lines(text: &str) -> String {
    replaced(text, |c| is_shown(c) || c == '\n')
}

/// Equivalent JSON in which such characters are escaped: they occur in strings only.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_kept = |c: char| is_shown(c) || c == '\n';
    match text.chars().all(is_kept) {
        true => text.into(),
        false => text
            .chars()
            .fold(String::new(), |text, c| match is_kept(c) {
                true => text + c.encode_utf8(&mut [0; 4]),
                false => format!("{text}\\u{:04x}", u32::from(c)),
            })
            .into(),
    }
}

fn replaced(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let shown = |c| if is_kept(c) { c } else { NOT_SHOWN };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_replaced() {
        for (bytes, expected) in [
            (&b"a name"[..], "a name"),
            ("имя 名前 é".as_bytes(), "имя 名前 é"),
            (b"\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}"),
            (
                b"a\nkinlock: b\r\t\x7f",
                "a\u{fffd}kinlock: b\u{fffd}\u{fffd}\u{fffd}",
            ),
            // A control character of two bytes, and a character that is cut short.
            (b"\xc2\x9b2J \xd0", "\u{fffd}2J \u{fffd}"),
            (
                "\u{202e}\u{2028}\u{61c}".as_bytes(),
                "\u{fffd}\u{fffd}\u{fffd}",
            ),
        ] {
            assert_eq!(name(bytes), expected);
        }
        assert_eq!(lines("a\nb\x1b[c"), "a\nb\u{fffd}[c");
        assert_eq!(json("[\n\"\u{9b}\u{202e}é\"]"), "[\n\"\\u009b\\u202eé\"]");
    }
}
