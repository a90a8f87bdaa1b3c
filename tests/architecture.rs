//! What holds for the sources as a whole: the direction of the modules, and what no file may mention.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// A module, and what its code must not have: paths and names.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "src/pin",
        &[
            // It decides; it does not know who asks.
            "crate::app",
            "crate::cli",
            "crate::cluster",
            "crate::config",
            "crate::inspect",
            "crate::observe",
            "crate::reconcile",
            "crate::tls",
            "crate::webhook",
            // Paths are written out, so that they can be looked for.
            "crate::{",
            "std::{",
            "super::super",
            // No client, no runtime, no file system, no clock: time is an argument.
            "Api",
            "Client",
            "tokio",
            "std::fs",
            "std::net",
            "std::env",
            "SystemTime",
            "Instant",
            "Timestamp::now",
        ],
    ),
    // What is granted follows from the kinds and the names, not from how the program is put together.
    (
        "src/install",
        &[
            "crate::app",
            "crate::cli",
            "crate::cluster",
            "crate::config",
            "crate::observe",
            "crate::reconcile",
            "crate::tls",
            "crate::trust",
            "crate::webhook",
        ],
    ),
    (
        "src/cluster",
        &[
            "crate::app",
            "crate::cli",
            "crate::config",
            "crate::inspect",
            "crate::reconcile",
            "crate::tls",
            "crate::trust",
            "crate::webhook",
        ],
    ),
    (
        "src/inspect",
        &[
            "crate::app",
            "crate::cli",
            "crate::config",
            "crate::observe",
            "crate::tls",
            "crate::trust",
            "crate::webhook",
        ],
    ),
    (
        "src/reconcile",
        &[
            "crate::app",
            "crate::cli",
            "crate::config",
            "crate::inspect",
            "crate::tls",
            "crate::trust",
            "crate::webhook",
        ],
    ),
    ("src/webhook", &["crate::app", "crate::cli", "crate::inspect", "crate::reconcile", "crate::trust"]),
    (
        "src/trust",
        &["crate::app", "crate::cli", "crate::config", "crate::inspect", "crate::reconcile", "crate::webhook"],
    ),
    ("src/tls", &["crate::app", "crate::cli", "crate::cluster", "crate::reconcile", "crate::trust", "crate::webhook"]),
    (
        "src/observe",
        &["crate::app", "crate::cli", "crate::cluster", "crate::reconcile", "crate::trust", "crate::webhook"],
    ),
];

#[test]
fn modules_point_in_one_direction() -> Result<(), Box<dyn Error>> {
    let mut found = Vec::new();
    for (module, forbidden) in FORBIDDEN {
        let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(module))?;
        assert!(!files.is_empty(), "{module} has no Rust files");
        for (file, code) in files {
            found.extend(forbidden.iter().filter(|path| has(&code, path)).map(|path| format!("{file}: {path}")));
        }
    }
    assert!(found.is_empty(), "not allowed there:\n{}", found.join("\n"));
    Ok(())
}

/// `src/pin/template.rs` compares templates by their text.
#[test]
fn json_objects_are_sorted() {
    let value: serde_json::Value = serde_json::from_str(r#"{"b":1,"a":2}"#).expect("it is JSON");
    assert_eq!(value.to_string(), r#"{"a":2,"b":1}"#, "a dependency turned on serde_json's feature preserve_order");
}

/// Files name nothing that only the machine has on which they were written.
#[test]
fn no_file_mentions_a_place_of_one_machine() {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let listed = listed.expect("git is there");
    assert!(listed.status.success(), "the tests run in a clone: {}", String::from_utf8_lossy(&listed.stderr));
    let forbidden = [["..", "shared"].join("/"), ["", "work", ""].join("/")];
    let mut found = Vec::new();
    for file in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|file| !file.is_empty()) {
        // One that is deleted and not yet committed is still listed.
        let content = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default();
        let content = String::from_utf8_lossy(&content);
        found.extend(forbidden.iter().filter(|text| content.contains(*text)).map(|text| format!("{file}: {text}")));
    }
    assert!(found.is_empty(), "not to be mentioned:\n{}", found.join("\n"));
}

/// Each block of the clients' pages has a mark, `<!-- tested: NAME -->`, and a test that reads it by page and name.
#[test]
fn every_command_of_the_clients_pages_is_executed_by_a_test() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests: String = sources(&root.join("tests/it"))?.into_iter().map(|(_, code)| code).collect();
    let mut missing = Vec::new();
    for page in fs::read_dir(root.join("docs/clients"))? {
        let page = page?.path();
        let name = page.file_name().unwrap_or_default().display().to_string();
        let text = fs::read_to_string(&page)?;
        let mut before = "";
        let mut inside = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("```") {
                inside = !inside;
                let block = before.strip_prefix("<!-- tested: ").and_then(|rest| rest.strip_suffix(" -->"));
                let is_read = block.is_some_and(|block| tests.contains(&format!("\"{block}\"")));
                if inside && !(is_read && tests.contains(&format!("\"{name}\""))) {
                    missing.push(format!("{name}: after {before:?}"));
                }
            }
            before = line;
        }
    }
    assert!(missing.is_empty(), "blocks that no test reads:\n{}", missing.join("\n"));
    Ok(())
}

/// The Rust files of a folder, with their code less comments.
fn sources(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?.path();
        if entry.is_dir() {
            found.extend(sources(&entry)?);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&entry)?;
            let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
            found.push((entry.display().to_string(), code.collect::<Vec<_>>().join("\n")));
        }
    }
    Ok(found)
}

/// Whether some code has this path or name, and not just a longer one that it is a part of.
fn has(code: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next().filter(|_| path.ends_with(is_part));
        ![before, after].into_iter().flatten().any(is_part)
    })
}
