//! The links of the docs: to files that exist, and to headings that these have.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn links_lead_to_files_and_headings() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages(root)?;
    let headings: HashMap<_, _> = pages.iter().map(|(page, text)| (page.clone(), anchors(text))).collect();
    let (mut followed, mut broken) = (0, Vec::new());
    for (page, text) in &pages {
        let folder = page.parent().unwrap_or(root);
        for link in links(text).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            followed += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { Ok(page.clone()) } else { folder.join(path).canonicalize() };
            let is_found = target.is_ok_and(|target| {
                anchor.is_empty() || headings.get(&target).is_some_and(|anchors| anchors.iter().any(|a| a == anchor))
            });
            if !is_found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(followed > 50, "only {followed} links were found");
    Ok(())
}

#[test]
fn links_and_headings_are_recognised() {
    let text = "# A `b`, c\n\n```console\n# no heading\n$ [no](link.md)\n```\n\n## A b c\n[x](y.md#z) and `[v](w)` ![p](q.svg)\n";
    assert_eq!(anchors(text), ["a-b-c", "a-b-c-1"]);
    assert_eq!(links(text).collect::<Vec<_>>(), ["y.md#z", "q.svg"]);
}

/// The Markdown files of the repository with their text.
fn pages(root: &Path) -> Result<BTreeMap<PathBuf, String>, Box<dyn Error>> {
    let listed = Command::new("git").args(["ls-files", "-z", "*.md"]).current_dir(root).output()?;
    assert!(listed.status.success(), "the tests run in a clone: {}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout)?;
    let paths = listed.split('\0').filter(|path| !path.is_empty()).map(|path| root.join(path));
    // A file that is deleted and not yet committed is still listed.
    let existing = paths.filter(|path| path.exists());
    existing.map(|path| Ok((path.canonicalize()?, fs::read_to_string(&path)?))).collect()
}

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchors of a page's headings, by the rules of GitHub and of mdBook.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slugs = headings.map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    });
    let numbered = slugs.map(|slug| {
        let count = seen.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    });
    numbered.collect()
}

/// The targets of links, without those in code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        line.match_indices("](").filter_map(move |(at, mark)| {
            let before = &line[..at];
            let begin = before.rfind('[')?;
            let is_code = before[..begin].matches('`').count() % 2 == 1;
            let rest = &line[at + mark.len()..];
            let end = rest.find(')')?;
            (!is_code).then(|| &rest[..end])
        })
    })
}
