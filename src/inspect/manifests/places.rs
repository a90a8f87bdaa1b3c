//! Where the documents of a YAML text begin, and where each scalar stands.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};

/// The documents of a text, each from its `---` or first line up to the next one's.
pub(super) fn bounds(text: &str) -> Result<Vec<Range<usize>>, ScanError> {
    let mut starts = Vec::new();
    for next in Parser::new_from_str(text) {
        let (event, span) = next?;
        if let Event::DocumentStart(explicit, _) = event {
            // One without a mark begins where the text does, or after the `...` of the one before.
            let start = span.byte_range().map(|range| range.start).unwrap_or_default();
            starts.push(if explicit || !starts.is_empty() { start } else { 0 });
        }
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    Ok(starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect())
}

/// Goes through a document that begins at `base`.
pub(super) fn places(text: &str, base: usize) -> Result<Walk<impl Events<'_>>, ScanError> {
    let mut walk = Walk { events: Parser::new_from_str(text), base, scalars: BTreeMap::new(), strange_key: None };
    while let Some((event, span)) = walk.next()? {
        walk.node(&event, span, String::new())?;
    }
    Ok(walk)
}

/// The events of a text.
pub(super) trait Events<'t>: Iterator<Item = Result<(Event<'t>, Span), ScanError>> {}

impl<'t, I: Iterator<Item = Result<(Event<'t>, Span), ScanError>>> Events<'t> for I {}

/// What a document has where.
pub(super) struct Walk<P> {
    events: P,
    base: usize,
    /// The place of each scalar, by JSON pointer.
    pub(super) scalars: BTreeMap<String, Range<usize>>,
    /// A key that `kubectl` takes for something else, and where it is.
    pub(super) strange_key: Option<(String, usize)>,
}

impl<'t, P: Events<'t>> Walk<P> {
    /// The next event that is not a comment.
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, ScanError> {
        for next in self.events.by_ref() {
            let next = next?;
            if next.0.is_node() || matches!(next.0, Event::SequenceEnd | Event::MappingEnd) {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Goes through the node that begins with `event`.
    fn node(&mut self, event: &Event<'t>, span: Span, pointer: String) -> Result<(), ScanError> {
        match event {
            Event::Scalar(..) | Event::Alias(_) => {
                if let Some(range) = span.byte_range() {
                    self.scalars.insert(pointer, range.start + self.base..range.end + self.base);
                }
            }
            Event::SequenceStart(..) => {
                for index in 0.. {
                    match self.next()? {
                        Some((Event::SequenceEnd, _)) | None => break,
                        Some((event, span)) => self.node(&event, span, format!("{pointer}/{index}"))?,
                    }
                }
            }
            Event::MappingStart(..) => {
                while let Some((key, span)) = self.next()? {
                    let key = match &key {
                        Event::MappingEnd => break,
                        Event::Scalar(text, style, ..) => {
                            if *style == ScalarStyle::Plain && is_no_text(text) && self.strange_key.is_none() {
                                let at = span.byte_range().map_or(0, |range| range.end);
                                self.strange_key = Some((text.to_string(), at + self.base));
                            }
                            text.replace('~', "~0").replace('/', "~1")
                        }
                        other => {
                            // No key of a Kubernetes object; it has to be gone through all the same.
                            self.node(other, span, "?".to_owned())?;
                            "?".to_owned()
                        }
                    };
                    let Some((value, span)) = self.next()? else { break };
                    self.node(&value, span, format!("{pointer}/{key}"))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether `kubectl` makes another key of this one where it stands without quotes: it reads YAML 1.1, in which `on` is a
/// boolean, and writes booleans and numbers as JSON does.
fn is_no_text(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    match lower.as_str() {
        "y" | "n" | "yes" | "no" | "on" | "off" => true,
        "true" | "false" | "null" => key != lower,
        _ => {
            let is_integer = key.parse::<i64>().is_ok_and(|number| number.to_string() == key);
            let digits = lower.trim_start_matches(['+', '-']).replace('_', "");
            let prefixed = ["0x", "0o", "0b"].iter().any(|prefix| digits.starts_with(prefix));
            let begins = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            begins && !is_integer && (prefixed || digits.parse::<f64>().is_ok())
        }
    }
}
