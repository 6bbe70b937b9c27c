//! A bar for work that takes long: on a terminal, and nowhere else.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Goes when it is dropped.
#[derive(Debug)]
pub(super) struct Bar(Option<ProgressBar>);

impl Bar {
    /// For `length` of something; `what` names it.
    pub(super) fn of(length: u64, what: &str) -> Self {
        Self(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length);
            // The look is a constant; without it the bar has the library's own.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {prefix}  {msg}")
            {
                bar.set_style(style);
            }
            bar.with_prefix(what.to_owned())
        }))
    }

    /// Whether anybody sees it.
    pub(super) const fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn at(&self, position: u64) {
        if let Self(Some(bar)) = self {
            bar.set_position(position);
        }
    }

    pub(super) fn clear(&self) {
        if let Self(Some(bar)) = self {
            bar.finish_and_clear();
        }
    }

    pub(super) fn length(&self, length: u64) {
        if let Self(Some(bar)) = self {
            bar.set_length(length);
        }
    }

    pub(super) fn says(&self, text: String) {
        if let Self(Some(bar)) = self {
            bar.set_message(text);
        }
    }

    /// Does something else on the terminal meanwhile.
    pub(super) fn beside(&self, work: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(work),
            None => work(),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
