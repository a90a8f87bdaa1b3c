//! Completion of the command line, for shells and for `kubectl` itself.

use clap::builder::PossibleValue;
use clap::{Arg, Command, ValueHint};

use super::output::print;
use super::{End, Error};

/// The program's name, by which shells know it.
const PROGRAM: &str = "kubectl-confpin";

/// What `kubectl` runs to complete `kubectl confpin …`
/// (<https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/#plugin-completion>).
const KUBECTL: &str = "\
#!/bin/sh
# Completes `kubectl confpin`: save it as kubectl_complete-confpin in a folder of PATH, and make it executable.
exec kubectl-confpin __complete \"$@\"
";

/// `kubectl` takes its own completion's directives: complete no file names, or do.
const NO_FILES: &str = ":4";
const FILES: &str = ":0";

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell; or kubectl, for the script that completes `kubectl confpin` in every shell.
    shell: Shell,
}

/// What can complete.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Kubectl,
}

/// Arguments of the command that `kubectl` runs.
#[derive(Debug, clap::Args)]
pub struct CompleteArgs {
    /// The words so far; the last is to be completed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Prints the script for a shell.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run(args: &Args, mut command: Command) -> Result<End, Error> {
    let mut script = Vec::new();
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Kubectl => {
            print(KUBECTL)?;
            return Ok(End::Fine);
        }
    };
    clap_complete::generate(shell, &mut command, PROGRAM, &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(End::Fine)
}

/// Prints what the last word can become.
///
/// # Errors
/// When standard output cannot be written to.
pub fn complete(args: &CompleteArgs, mut command: Command) -> Result<End, Error> {
    command.build();
    let (last, before) = args.words.split_last().map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let (words, files) = candidates(&command, before, last);
    let mut text = words.join("\n");
    if !words.is_empty() {
        text.push('\n');
    }
    print(&format!("{text}{}\n", if files { FILES } else { NO_FILES }))?;
    Ok(End::Fine)
}

/// The words that begin with `last` and can follow `before`, and whether file names can.
fn candidates(command: &Command, before: &[String], last: &str) -> (Vec<String>, bool) {
    let mut command = command;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let option = before.last().and_then(|word| command.get_arguments().find(|argument| is_named(argument, word)));
    if let Some(option) = option.filter(|option| option.get_action().takes_values()) {
        let values = option.get_possible_values().iter().map(PossibleValue::get_name).map(str::to_owned).collect();
        let hint = option.get_value_hint();
        return (
            beginning(values, last),
            matches!(hint, ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath),
        );
    }
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let words: Vec<String> = if last.starts_with('-') {
        visible.filter_map(Arg::get_long).map(|long| format!("--{long}")).collect()
    } else {
        let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
        let positional = visible.filter(|argument| argument.is_positional()).flat_map(Arg::get_possible_values);
        let names = subcommands.map(|command| command.get_name().to_owned());
        names.chain(positional.map(|value| value.get_name().to_owned())).collect()
    };
    (beginning(words, last), false)
}

fn is_named(argument: &Arg, word: &str) -> bool {
    let long = argument.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
    long || argument.get_short().is_some_and(|short| word.strip_prefix('-') == Some(short.encode_utf8(&mut [0; 4])))
}

fn beginning(words: Vec<String>, start: &str) -> Vec<String> {
    words.into_iter().filter(|word| word.starts_with(start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> (Vec<String>, bool) {
        let mut command = super::super::plugin_command();
        command.build();
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let (last, before) = words.split_last().expect("a word");
        candidates(&command, before, last)
    }

    #[test]
    fn completes_commands_options_and_values() {
        assert_eq!(of("st").0, ["status"]);
        assert_eq!(of("opt-").0, ["opt-out", "opt-in"]);
        assert_eq!(of("status --all").0, ["--all-namespaces"]);
        assert_eq!(of("status -o ").0, ["wide", "json", "yaml"]);
        assert_eq!(of("completion z").0, ["zsh"]);
        assert!(of("__").0.is_empty(), "it is not for people");
    }

    #[test]
    fn file_names_follow_where_files_are_taken() {
        assert!(of("render -f ").1);
        assert!(of("preview --kustomize ").1);
        assert!(!of("status ").1);
    }
}
