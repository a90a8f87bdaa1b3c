//! The reference of the command line, made from the definitions of the arguments: `docs/cli.md`.

use std::fmt::Write as _;

use clap::{Command, CommandFactory};

use super::{Cli, PluginCli};

/// The width of the help texts.
const WIDTH: usize = 100;

/// The reference, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = "<!-- Made by `cargo run --example cli_reference` from src/cli: do not edit. -->\n\n# Commands\n\n\
        `kubectl confpin` is the program `kubectl-confpin` in a folder of `PATH`. `confpin` has the same commands, and\n\
        `serve`. What they show: [plugin.md](plugin.md).\n"
        .to_owned();
    let mut plugin = without_values(PluginCli::command()).term_width(WIDTH);
    plugin.build();
    section(&mut text, &mut plugin, "kubectl confpin");
    let mut confpin = without_values(Cli::command()).term_width(WIDTH);
    confpin.build();
    if let Some(serve) = confpin.find_subcommand_mut("serve") {
        section(&mut text, serve, "confpin serve");
    }
    text
}

/// What a variable happens to be set to is no part of the reference.
fn without_values(command: Command) -> Command {
    command.mut_args(|argument| argument.hide_env_values(true)).mut_subcommands(without_values)
}

fn section(text: &mut String, command: &mut Command, name: &str) {
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    // Writing to a string cannot fail.
    let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for subcommand in command.get_subcommands_mut() {
        let sub = subcommand.get_name().to_owned();
        if !subcommand.is_hide_set() && sub != "help" {
            section(text, subcommand, &format!("{name} {sub}"));
        }
    }
}
