//! The words of docs, messages and comments, checked against the table of docs/STYLE.md.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Which files are checked, by the beginnings and ends of their paths.
const CHECKED: &[(&str, &str)] =
    &[("", ".md"), ("src/", ".rs"), ("manifests/", ""), ("certs/", ""), (".ci/", ""), ("tests/it/snapshots/", "")];

/// The page that lists the words, and so has them.
const STYLE: &str = "docs/STYLE.md";

#[test]
fn no_file_has_a_word_that_the_style_guide_excludes() -> Result<(), Box<dyn Error>> {
    let page = read(STYLE);
    let words = excluded(&page);
    assert!(words.len() > 10, "the table of {STYLE} has {words:?}");
    let mut found = Vec::new();
    for file in files()?.iter().filter(|file| is_checked(file)) {
        let text = Text::new(&read(file));
        for word in &words {
            found.extend(text.lines_with(word).into_iter().map(|line| format!("{file}:{line}: {word}")));
        }
    }
    assert!(found.is_empty(), "see the table of {STYLE}:\n{}", found.join("\n"));
    Ok(())
}

#[test]
fn words_are_found_as_words_and_across_lines() {
    let text = Text::new("It goes\n/// on.\nAnewly, no more than\nthat; Anew.");
    assert_eq!(text.lines_with("goes on"), [1]);
    assert_eq!(text.lines_with("anew"), [4]);
    assert!(text.lines_with("no more").is_empty());
}

/// The first column of the table under the heading "Words".
fn excluded(page: &str) -> Vec<&str> {
    let table = page.split_once("## Words").map_or("", |(_, table)| table);
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(" |").next()).filter(|word| *word != "do not write").collect()
}

fn is_checked(file: &str) -> bool {
    file != STYLE && CHECKED.iter().any(|(folder, end)| file.starts_with(folder) && file.ends_with(end))
}

/// The files of the repository, as paths from its root.
fn files() -> Result<Vec<String>, Box<dyn Error>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    assert!(listed.status.success(), "the tests run in a clone: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout)?;
    Ok(listed.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}

/// A file that is deleted and not yet committed is still listed; binary files have no words.
fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default()
}

/// A text as its words in lower case, each with the number of its line. The marks of comments are no words.
struct Text(Vec<(usize, String)>);

impl Text {
    fn new(text: &str) -> Self {
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
        let lines = text.lines().enumerate();
        let words = lines.flat_map(|(index, line)| {
            let words = line.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
            words.map(move |word| (index + 1, word.to_lowercase()))
        });
        Self(words.collect())
    }

    /// The lines in which `phrase` begins. "no more than" is a comparison, and allowed.
    fn lines_with(&self, phrase: &str) -> Vec<usize> {
        let phrase: Vec<_> = phrase.split(' ').collect();
        let is_phrase =
            |words: &[(usize, String)]| words.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied());
        let followed_by = |at: usize| self.0.get(at + phrase.len()).map(|(_, word)| word.as_str());
        let windows = self.0.windows(phrase.len()).enumerate();
        let found = windows.filter(|(at, words)| is_phrase(words) && followed_by(*at) != Some("than"));
        found.map(|(_, words)| words[0].0).collect()
    }
}
