//! What the demo prints, in colour where a terminal shows it.

use std::io::{IsTerminal, stdout};

/// Begins a step.
pub fn heading(text: &str) {
    println!("\n{}", paint("1", &format!("== {text}")));
}

/// Tells something.
pub fn say(text: &str) {
    println!("{text}");
}

/// Shows a command that is about to run.
pub fn command(line: &str) {
    println!("{}", paint("36", &format!("$ {line}")));
}

/// Shows rows under a title each, in columns.
pub fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([titles[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned()
    };
    println!("  {}", paint("2", &line(titles)));
    for row in rows {
        println!("  {}", line(std::array::from_fn(|column| row[column].as_str())));
    }
}

fn paint(code: &str, text: &str) -> String {
    if stdout().is_terminal() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}
