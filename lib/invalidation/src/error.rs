//! The errors of delayed invalidation.

use crate::raw::{MAX_PLACES, NearWrap};
use core::fmt;

/// Why a section cannot begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BeginError {
    /// 8191 other living threads have begun sections, in any domain.
    TooManyThreads,
    /// The domain's generations are used up. Tags can still be waited for; use another domain for
    /// new sections.
    NearWrap,
    /// The thread is ending, and has given up its place already. Destructors of thread-locals never
    /// see this with glibc.
    ThreadEnding,
    /// The program has used up its `pthread` keys, or the memory for their values.
    NoKey,
    /// The domain was made by another copy of this library in the same process. In that copy
    /// threads have other places.
    OtherCopy,
}

const OTHER_COPY: &str =
    "the domain of delayed invalidation was made by another copy of kinlock-invalidation";

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BeginError::TooManyThreads => {
                write!(
                    f,
                    "more than {MAX_PLACES} threads have sections of delayed invalidation"
                )
            }
            BeginError::NearWrap => {
                f.write_str("the domain's generations of delayed invalidation are used up")
            }
            BeginError::ThreadEnding => f.write_str("the thread is ending"),
            BeginError::NoKey => f.write_str("no pthread key is left to notice the thread's end"),
            BeginError::OtherCopy => f.write_str(OTHER_COPY),
        }
    }
}

impl core::error::Error for BeginError {}

impl From<NearWrap> for BeginError {
    fn from(_: NearWrap) -> Self {
        BeginError::NearWrap
    }
}

/// Why a wait did not end with the tag passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// The calling thread has a section of the domain open: it might wait for itself.
    InsideSection,
    /// The time was up first.
    TimedOut,
    /// The tag's generation is above all that this domain has given out: sections of another domain
    /// have stamped it. Not detected if the foreign generation is lower.
    ForeignTag,
    /// As [`BeginError::OtherCopy`]: this copy cannot tell whether the calling thread has a section
    /// open.
    OtherCopy,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitError::InsideSection => {
                "waiting for delayed invalidation within one's own section would never end"
            }
            WaitError::ForeignTag => {
                "the tag is that of another domain of delayed invalidation: its generation was \
                 never given out here"
            }
            WaitError::TimedOut => "delayed invalidation did not end in time",
            WaitError::OtherCopy => OTHER_COPY,
        })
    }
}

impl core::error::Error for WaitError {}

/// No section of the domain has had this generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeverIssued(
    /// The generation.
    pub u64,
);

impl fmt::Display for NeverIssued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.0;
        write!(
            f,
            "no section of the domain has had the generation {generation}"
        )
    }
}

impl core::error::Error for NeverIssued {}
