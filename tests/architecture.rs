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
    (
        "src/cluster",
        &["crate::app", "crate::cli", "crate::config", "crate::inspect", "crate::reconcile", "crate::webhook"],
    ),
    ("src/inspect", &["crate::app", "crate::cli", "crate::config", "crate::observe", "crate::tls", "crate::webhook"]),
    ("src/reconcile", &["crate::app", "crate::cli", "crate::config", "crate::inspect", "crate::tls", "crate::webhook"]),
    ("src/webhook", &["crate::app", "crate::cli", "crate::inspect", "crate::reconcile"]),
    ("src/tls", &["crate::app", "crate::cli", "crate::cluster", "crate::reconcile", "crate::webhook"]),
    ("src/observe", &["crate::app", "crate::cli", "crate::cluster", "crate::reconcile", "crate::webhook"]),
];

#[test]
fn modules_point_in_one_direction() -> Result<(), Box<dyn Error>> {
    let mut found = Vec::new();
    for (module, forbidden) in FORBIDDEN {
        for (file, code) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(module))? {
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
    assert!(!found.is_empty(), "{} has no Rust files", folder.display());
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
