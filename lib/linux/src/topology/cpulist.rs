//! The kernel's text form of a set of CPUs: `0-3,8,10-11`.

use core::fmt;
use core::ops::RangeInclusive;

/// CPU numbers from this one on are errors. It is far beyond what any kernel supports, and small
/// enough to enumerate.
const NUMBER_LIMIT: usize = 1 << 20;

/// Reads a list of CPUs from a sequence of bytes, range by range, without allocation.
///
/// A list consists of numbers and ascending ranges, separated by commas. White space around them is
/// skipped, and a list may be empty. Ranges may overlap and come in any order. The strided form
/// `0-31:2/4`, which the kernel reads but never writes, is an error. The iterator ends after an
/// error.
///
/// ```
/// use kinlock_linux::topology::CpuList;
///
/// let ranges: Result<Vec<_>, _> = CpuList::new(*b"0-3,8\n").collect();
/// assert_eq!(ranges, Ok(vec![0..=3, 8..=8]));
/// ```
#[derive(Clone, Debug)]
pub struct CpuList<I> {
    bytes: I,
    /// The next byte to read.
    next: Option<u8>,
    at: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    AfterRange,
    End,
}

impl<I: Iterator<Item = u8>> CpuList<I> {
    /// A reader of the list in `bytes`.
    pub fn new(bytes: impl IntoIterator<IntoIter = I>) -> Self {
        let mut bytes = bytes.into_iter();
        let next = bytes.next();
        CpuList {
            bytes,
            next,
            at: 0,
            state: State::Start,
        }
    }

    fn range(&mut self) -> Result<Option<RangeInclusive<usize>>, CpuListError> {
        self.skip_space();
        match (self.state, self.next) {
            (State::End, _) | (_, None) => return Ok(None),
            (State::AfterRange, Some(b',')) => self.advance(),
            (State::AfterRange, Some(_)) => return Err(self.error("expected a comma")),
            (State::Start, Some(_)) => {}
        }
        let first = self.number()?;
        self.skip_space();
        if self.next != Some(b'-') {
            return Ok(Some(first..=first));
        }
        self.advance();
        let last = self.number()?;
        if last < first {
            return Err(self.error("range runs backwards"));
        }
        Ok(Some(first..=last))
    }

    fn number(&mut self) -> Result<usize, CpuListError> {
        self.skip_space();
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.next {
            // Cannot overflow: the number so far is below the limit.
            let grown = number.unwrap_or(0) * 10 + usize::from(digit - b'0');
            if grown >= NUMBER_LIMIT {
                return Err(self.error("CPU number too large"));
            }
            number = Some(grown);
            self.advance();
        }
        number.ok_or_else(|| self.error("expected a CPU number"))
    }

    fn skip_space(&mut self) {
        while self.next.is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.advance();
        }
    }

    fn advance(&mut self) {
        self.next = self.bytes.next();
        self.at += 1;
    }

    fn error(&self, problem: &'static str) -> CpuListError {
        CpuListError {
            at: self.at,
            problem,
        }
    }
}

impl<I: Iterator<Item = u8>> Iterator for CpuList<I> {
    type Item = Result<RangeInclusive<usize>, CpuListError>;

    fn next(&mut self) -> Option<Self::Item> {
        let range = self.range();
        self.state = match range {
            Ok(Some(_)) => State::AfterRange,
            Ok(None) | Err(_) => State::End,
        };
        range.transpose()
    }
}

/// What is wrong with a list of CPUs, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuListError {
    at: usize,
    problem: &'static str,
}

impl CpuListError {
    /// How many bytes of the list precede the offending one.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at position {}", self.problem, self.at + 1)
    }
}

impl core::error::Error for CpuListError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<RangeInclusive<usize>>, CpuListError> {
        CpuList::new(text.bytes()).collect()
    }

    #[test]
    fn reads_the_lists_that_the_kernel_writes() {
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse("\n"), Ok(vec![]));
        assert_eq!(parse("0\n"), Ok(vec![0..=0]));
        assert_eq!(parse("0-3,8,10-15\n"), Ok(vec![0..=3, 8..=8, 10..=15]));
        assert_eq!(parse(" 1 - 2 , 7 "), Ok(vec![1..=2, 7..=7]));
        assert_eq!(parse("5,1"), Ok(vec![5..=5, 1..=1]));
        assert_eq!(parse("1048575"), Ok(vec![1_048_575..=1_048_575]));
    }

    #[test]
    fn names_what_is_wrong_and_where() {
        for (text, at, problem) in [
            ("x", 0, "expected a CPU number"),
            ("1,", 2, "expected a CPU number"),
            (",1", 0, "expected a CPU number"),
            ("1,,2", 2, "expected a CPU number"),
            ("1-", 2, "expected a CPU number"),
            ("-1", 0, "expected a CPU number"),
            ("3-1", 3, "range runs backwards"),
            ("1 2", 2, "expected a comma"),
            ("0-31:2/4", 4, "expected a comma"),
            ("1-2-3", 3, "expected a comma"),
            ("1048576", 6, "CPU number too large"),
            ("99999999999999999999999", 6, "CPU number too large"),
        ] {
            assert_eq!(parse(text), Err(CpuListError { at, problem }), "{text}");
        }
    }

    #[test]
    fn ends_after_an_error() {
        let mut list = CpuList::new(*b"1,x,2");
        assert_eq!(list.next(), Some(Ok(1..=1)));
        assert!(matches!(list.next(), Some(Err(_))));
        assert_eq!(list.next(), None);
    }
}
