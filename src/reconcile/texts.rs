//! Texts that the index has in many places: each is in memory once.

use std::collections::HashSet;
use std::sync::Arc;

/// How many texts there are at least before those are looked for that nobody has any more.
const FEW: usize = 1_024;

/// The texts that are in use.
#[derive(Debug, Default)]
pub(super) struct Texts {
    known: HashSet<Arc<str>>,
    swept: usize,
}

impl Texts {
    /// The one text that is equal to this.
    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        // Twice as many as were left the last time: looking through all costs no more than adding as many.
        if self.known.len() >= (2 * self.swept).max(FEW) {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.swept = self.known.len();
        }
        let text: Arc<str> = text.into();
        self.known.insert(text.clone());
        text
    }

    /// Replaces each text by the shared one that is equal.
    pub(super) fn share<'a>(&mut self, texts: impl IntoIterator<Item = &'a mut Arc<str>>) {
        texts.into_iter().for_each(|text| *text = self.get(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut texts = Texts::default();
        let mut other: Arc<str> = "app-config".into();
        texts.share([&mut other]);
        assert!(Arc::ptr_eq(&other, &texts.get("app-config")));
    }

    #[test]
    fn what_nobody_has_any_more_is_forgotten() {
        let mut texts = Texts::default();
        let kept = texts.get("kept");
        for number in 0..10 * FEW {
            texts.get(&number.to_string());
        }
        assert!(texts.known.len() <= FEW + 1);
        assert!(Arc::ptr_eq(&kept, &texts.get("kept")));
    }
}
