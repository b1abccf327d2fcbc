//! The command line as one language, held against clap's own model of it: every verb and flag says what it is, and what is spelled the same means the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Flags that are spelled like others and mean something else, each with its reason. `*` is for every verb but those that agree.
const ANOTHER_MEANING: &[(&str, &str, &str)] = &[
    (
        "runs list",
        "tag parent backend kind command exit-code",
        "a filter names what a run was given by the flag of the same name",
    ),
    (
        "serve",
        "net net-private net-proxy image",
        "the daemon's is what its runs may have at most",
    ),
    (
        "execute",
        "workspace worker",
        "the payload says whether the workspace is writable, and what the worker is called is written into its answer",
    ),
    (
        "verify",
        "workspace",
        "as for `execute`, and only with --rerun",
    ),
    (
        "images pull",
        "timeout max-size",
        "bounds on what comes of a stranger, not on a run",
    ),
    ("images import", "timeout max-size name", "the same"),
    (
        "images build",
        "timeout name no-cache",
        "the same, and the word of every tool that builds images",
    ),
    ("worker", "name", "its own"),
    ("audit list", "before", "entries have numbers, not ids"),
    (
        "import",
        "require-signature",
        "of a bundle, whose signer need not be known here: --trust names it",
    ),
    ("fleet init", "grace", "of workers, not of the daemon"),
    (
        "cache list",
        "project",
        "a directory here, like `submit --project`, that is not sent",
    ),
    ("cache stats", "project", "the same"),
    ("cache clear", "project", "the same"),
    (
        "runs save",
        "output",
        "a directory: a run is more than one file",
    ),
    (
        "chain node",
        "listen",
        "never anywhere but loopback, and nobody has a token",
    ),
];

/// What prints nothing that a program would want in another form.
const WITHOUT_JSON: &[(&str, &str)] = &[
    ("seal", "prints the payload, which is JSON"),
    ("execute", "prints the envelope, which is JSON"),
    ("serve", "its log is JSON already"),
    ("worker", "runs until it is ended"),
    ("fleet coordinate", "runs until it is ended"),
    (
        "receipt make",
        "prints the receipt: one line of its own form",
    ),
    ("keys export", "prints PEM"),
    ("artifacts cat", "prints the file"),
    ("completions", "prints a script"),
    ("man", "prints a page"),
];

/// From here on, flags stand under headings.
const FEW: usize = 8;

/// Every verb with its whole name, what clap adds itself left out.
fn verbs() -> Vec<(String, Command)> {
    let mut root = Cli::command();
    root.build();
    let mut found = Vec::new();
    collect(&root, "", &mut found);
    found
}

fn collect(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
    for verb in command.get_subcommands() {
        if verb.get_name() == "help" || verb.is_hide_set() {
            continue;
        }
        let name = format!("{name} {}", verb.get_name());
        found.push((name.trim().to_owned(), verb.clone()));
        collect(verb, &name, found);
    }
}

fn leaves() -> Vec<(String, Command)> {
    let verbs = verbs().into_iter();
    verbs
        .filter(|(_, verb)| {
            verb.get_subcommands()
                .all(|below| below.get_name() == "help")
        })
        .collect()
}

fn flags(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_arguments()
        .filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
}

fn is_other(verb: &str, flag: &str) -> bool {
    ANOTHER_MEANING
        .iter()
        .any(|(of, flags, _)| *of == verb && flags.split(' ').any(|other| other == flag))
}

#[track_caller]
fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_verb_and_every_flag_says_what_it_is() {
    let mut problems = Vec::new();
    for (name, verb) in verbs() {
        if verb.get_about().is_none() {
            problems.push(format!("{name}: says nothing of itself"));
        }
        for arg in verb.get_arguments() {
            let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
            if text.len() < 4 {
                problems.push(format!("{name} {}: has no help", arg.get_id()));
            }
        }
    }
    none(&problems);
}

#[test]
fn every_verb_that_does_something_shows_an_example_of_itself() {
    let mut problems = Vec::new();
    for (name, verb) in leaves() {
        let text = verb.get_after_long_help().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let example = text
            .lines()
            .skip_while(|line| !line.starts_with("Example"))
            .any(|line| {
                line.contains("cofferdam") && name.split(' ').all(|word| line.contains(word))
            });
        if !example {
            problems.push(format!("{name}: no example of it after `Example:`"));
        }
    }
    none(&problems);
}

#[test]
fn a_flag_that_is_spelled_the_same_means_the_same() {
    // What a verb takes when nothing is said may differ.
    let meaning = |arg: &Arg| {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help
            .split(" [default: ")
            .next()
            .unwrap_or_default()
            .to_owned();
        let values: Vec<String> = arg
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        format!("{} {help}", values.join(" "))
    };
    let mut meanings: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    for (name, verb) in leaves() {
        for arg in flags(&verb) {
            let Some(flag) = arg.get_long() else { continue };
            if is_other(&name, flag) {
                used.insert((name.clone(), flag.to_owned()));
                continue;
            }
            let meanings = meanings.entry(flag.to_owned()).or_default();
            meanings
                .entry(meaning(arg))
                .or_default()
                .insert(name.clone());
        }
    }
    let mut problems: Vec<String> = meanings
        .into_iter()
        .filter(|(_, meanings)| meanings.len() > 1)
        .map(|(flag, meanings)| format!("--{flag}: {meanings:#?}"))
        .collect();
    for (verb, flags, _) in ANOTHER_MEANING {
        for flag in flags.split(' ') {
            if !used.contains(&((*verb).to_owned(), flag.to_owned())) {
                problems.push(format!("{verb} --{flag}: is excepted and does not exist"));
            }
        }
    }
    none(&problems);
}

#[test]
fn a_short_flag_stands_for_one_long_one() {
    let mut shorts: BTreeMap<char, BTreeSet<String>> = BTreeMap::new();
    let mut longs: BTreeMap<String, BTreeSet<Option<char>>> = BTreeMap::new();
    for (_, verb) in leaves() {
        for arg in flags(&verb) {
            let Some(long) = arg.get_long() else {
                assert!(arg.get_short().is_none(), "{arg:?}");
                continue;
            };
            longs
                .entry(long.to_owned())
                .or_default()
                .insert(arg.get_short());
            if let Some(short) = arg.get_short() {
                shorts.entry(short).or_default().insert(long.to_owned());
            }
        }
    }
    shorts.retain(|_, longs| longs.len() > 1);
    longs.retain(|_, shorts| shorts.len() > 1);
    assert!(
        shorts.is_empty() && longs.is_empty(),
        "{shorts:?} {longs:?}"
    );
}

#[test]
fn every_verb_that_prints_something_prints_json_too() {
    let mut problems = Vec::new();
    for (name, verb) in leaves() {
        let has = flags(&verb).any(|arg| arg.get_long() == Some("json"));
        let is_excepted = WITHOUT_JSON.iter().any(|(verb, _)| *verb == name);
        if has == is_excepted {
            problems.push(format!(
                "{name}: --json is {}",
                if has { "there and excepted" } else { "missing" }
            ));
        }
    }
    let names: BTreeSet<String> = leaves().into_iter().map(|(name, _)| name).collect();
    let gone = WITHOUT_JSON
        .iter()
        .filter(|(verb, _)| !names.contains(*verb));
    problems.extend(gone.map(|(verb, _)| format!("{verb}: is excepted and does not exist")));
    none(&problems);
}

#[test]
fn many_flags_stand_under_headings() {
    let mut problems = Vec::new();
    for (name, verb) in leaves() {
        let named: Vec<&Arg> = flags(&verb)
            .filter(|arg| arg.get_long().is_some() && !arg.is_hide_set())
            .collect();
        let loose: Vec<&str> = named
            .iter()
            .filter(|arg| arg.get_help_heading().is_none())
            .filter_map(|arg| arg.get_long())
            .collect();
        if named.len() > FEW && !loose.is_empty() {
            problems.push(format!(
                "{name}: {} flags, and under no heading: {}",
                named.len(),
                loose.join(" ")
            ));
        }
    }
    none(&problems);
}

/// The help of every verb at 80 columns, a file for each. `COFFERDAM_BLESS=1` writes them.
#[test]
fn the_help_of_every_verb_is_as_it_is_written() {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/session/help"));
    let is_blessed = std::env::var_os("COFFERDAM_BLESS").is_some();
    let mut root = Cli::command();
    root.build();
    let mut all = verbs();
    all.push((String::new(), root));
    let (mut names, mut problems) = (BTreeSet::new(), Vec::new());
    for (name, verb) in all {
        let name = format!("cofferdam {name}").trim().replace(' ', "-") + ".txt";
        // A password may stand in a variable, and help is shown to others.
        for arg in verb.get_arguments() {
            if arg.get_env().is_some() && !arg.is_hide_env_values_set() {
                problems.push(format!(
                    "{name}: {} shows its variable's value",
                    arg.get_id()
                ));
            }
        }
        let verb = verb.term_width(80);
        let text = verb.clone().render_long_help().to_string();
        let text: String = text
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        for line in text.lines().filter(|line| line.chars().count() > 80) {
            // An example is to be copied as it is.
            if !line.trim_start().starts_with("cofferdam ") && line.contains("  ") {
                problems.push(format!("{name}: is wider than the terminal: {line}"));
            }
        }
        let file = dir.join(&name);
        if is_blessed {
            std::fs::write(&file, &text).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != text {
            problems.push(format!(
                "{name}: is not as it was; COFFERDAM_BLESS=1 writes it down"
            ));
        }
        names.insert(name);
    }
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !names.contains(&name) {
            problems.push(format!("{name}: is of no verb"));
        }
    }
    none(&problems);
}

#[test]
fn the_page_of_json_has_every_verb_and_every_schema() {
    let page = include_str!("../../../../docs/json.md");
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .collect();
    let listed: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.split('`').next())
        .collect();
    let mut problems = Vec::new();
    let names: Vec<String> = leaves().into_iter().map(|(name, _)| name).collect();
    for (name, verb) in leaves() {
        let has = flags(&verb).any(|arg| arg.get_long() == Some("json"));
        let told = listed
            .iter()
            .any(|row| *row == name || row.starts_with(&format!("{name} ")));
        if has && !told {
            problems.push(format!("{name}: is not on the page"));
        }
    }
    for row in &listed {
        let is_verb = |name: &String| row == name || row.starts_with(&format!("{name} "));
        if !names.iter().any(is_verb) {
            problems.push(format!("{row}: is no verb"));
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut dirs = vec![source];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let texts = text.split('"').filter(|text| {
                text.starts_with("cofferdam.") && text.contains('/') && text.len() < 40
            });
            let texts = texts.map(|text| text.trim_end_matches('\\'));
            for schema in texts.filter(|schema| !page.contains(&format!("`{schema}`"))) {
                problems.push(format!("{}: {schema} is not on the page", path.display()));
            }
        }
    }
    none(&problems);
}

#[test]
fn the_page_of_exit_codes_has_every_verb() {
    let page = include_str!("../../../../docs/exit-codes.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<&str> = rows
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let group = |name: &str| name.split(' ').next().map(|first| format!("{first} …"));
    let missing = leaves().into_iter().filter(|(name, _)| {
        let in_group = group(name).is_some_and(|group| listed.contains(group.as_str()));
        name != "run" && !in_group && !listed.contains(name.as_str())
    });
    let missing: Vec<String> = missing.map(|(name, _)| name).collect();
    assert_eq!(missing, Vec::<String>::new());
}
