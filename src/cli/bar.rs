//! A progress bar, on a terminal only.

use std::io::{IsTerminal, Write, stderr};

/// How many characters the bar itself has.
const WIDTH: usize = 30;

/// Shows how much of a whole is done.
#[derive(Debug)]
pub struct Bar {
    whole: usize,
    done: usize,
    shown: bool,
}

impl Bar {
    /// A bar for this many steps.
    pub fn new(whole: usize) -> Self {
        let bar = Self { whole, done: 0, shown: stderr().is_terminal() };
        bar.show();
        bar
    }

    /// A step is done; `tell` prints what is to stay above the bar.
    pub fn step<T>(&mut self, tell: impl FnOnce() -> T) -> T {
        self.hide();
        let told = tell();
        self.done += 1;
        self.show();
        told
    }

    fn line(&self) -> String {
        let filled = WIDTH * self.done / self.whole.max(1);
        format!("[{}{}] {}/{}", "#".repeat(filled), ".".repeat(WIDTH - filled), self.done, self.whole)
    }

    fn show(&self) {
        if self.shown {
            // The bar is for a person at a terminal; nothing depends on it.
            let _ = write!(stderr(), "{}", self.line());
        }
    }

    fn hide(&self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.hide();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_from_left_to_right() {
        let line = |done, whole| Bar { whole, done, shown: false }.line();
        assert_eq!(line(0, 4), format!("[{}] 0/4", ".".repeat(WIDTH)));
        assert_eq!(line(1, 2), format!("[{}{}] 1/2", "#".repeat(15), ".".repeat(15)));
        assert_eq!(line(4, 4), format!("[{}] 4/4", "#".repeat(WIDTH)));
        assert_eq!(line(0, 0), format!("[{}] 0/0", ".".repeat(WIDTH)));
    }
}
