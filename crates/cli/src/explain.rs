//! `cofferdam explain`: what a code of ours means and what to do about it, whether it is an error's or the one that the command line ended with.

use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_contract::codes;
use cofferdam_contract::signal::signal_name;
use cofferdam_server::catalogue::{self, Explained};
use serde_json::json;

use crate::arguments::ExplainArgs;
use crate::failure::{self, Failure};

pub(crate) fn explain(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let codes = catalogue::codes();
    let Some(asked) = &args.code else {
        let text = match args.json {
            true => written(&json!({ "schema": "cofferdam.codes/1", "codes": codes })),
            false => table(&codes),
        };
        failure::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let asked = asked.trim().trim_matches(['[', ']']);
    let text = match asked.parse::<u8>() {
        Ok(number) if args.json => {
            let meanings = exit_meanings(number);
            written(
                &json!({ "schema": "cofferdam.codes/1", "exit_code": number, "meanings": meanings }),
            )
        }
        Ok(number) => exit_text(number),
        Err(_) => {
            let found = codes.iter().find(|explained| explained.code == asked);
            let found = found.ok_or_else(|| unknown(asked, &codes))?;
            match args.json {
                true => written(&json!({ "schema": "cofferdam.codes/1", "codes": [found] })),
                false => words(found),
            }
        }
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn written(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn table(codes: &[Explained]) -> String {
    let width = codes.iter().map(|explained| explained.code.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for Explained { code, meaning, .. } in codes {
        let _ = writeln!(text, "{code:width$}  {meaning}");
    }
    text
}

fn words(explained: &Explained) -> String {
    let Explained {
        code,
        exit_code,
        http_status,
        meaning,
        what_to_do,
    } = explained;
    let exit = exit_code.map_or_else(String::new, |code| format!("exit code {code}, "));
    format!("{code} ({exit}HTTP {http_status})\n\n{meaning}\n{what_to_do}\n")
}

/// The same code, or the nearest that there are.
fn unknown(asked: &str, codes: &[Explained]) -> Failure {
    let family = asked.split('.').next().unwrap_or(asked);
    let is_near = |explained: &&Explained| {
        !family.is_empty() && (explained.code.starts_with(family) || explained.code.contains(asked))
    };
    let near: Vec<&str> = codes
        .iter()
        .filter(is_near)
        .map(|explained| explained.code)
        .collect();
    let fix = match near.as_slice() {
        [] => "there is no such code; `cofferdam explain` lists all codes".to_owned(),
        near => format!("there is no such code; near it: {}", near.join(", ")),
    };
    Failure::problem("CODE", asked, fix)
}

fn exit_text(number: u8) -> String {
    let mut text = format!("exit code {number}\n\n");
    for meaning in exit_meanings(number) {
        let _ = writeln!(text, "{meaning}");
    }
    text.push_str("Whoever needs certainty uses --json and reads `ending`.\n");
    text
}

/// A program may return any number itself, so there is more than one.
fn exit_meanings(number: u8) -> Vec<String> {
    let ours = match number {
        0 => Some("The program ended well."),
        codes::EXIT_WALL_TIME => Some("Stopped by the wall time limit (--timeout)."),
        codes::EXIT_OURS => Some(
            "Cofferdam could not do its work and the program never ran; the message says why, with a code to explain.",
        ),
        codes::EXIT_NOT_EXECUTABLE => {
            Some("The program is there inside the sandbox and cannot be executed.")
        }
        codes::EXIT_NOT_FOUND => Some("The program is not there inside the sandbox."),
        codes::EXIT_CANCELED => Some("Canceled: Ctrl-C, or another signal to Cofferdam."),
        codes::EXIT_KILLED => {
            Some("Stopped by the memory or the process limit (--memory, --pids).")
        }
        codes::EXIT_CPU_TIME => Some("Stopped by the CPU time limit (--cpu-time)."),
        codes::EXIT_SIZE => {
            Some("Stopped by the output or the disk limit (--output-limit, --disk).")
        }
        _ => None,
    };
    let mut meanings: Vec<String> = ours.map(str::to_owned).into_iter().collect();
    let signal = number
        .checked_sub(128)
        .filter(|signal| (1..=64).contains(signal));
    if let Some(number) = signal {
        let name = signal_name(i32::from(number));
        meanings.push(format!(
            "{name} ended the program, and no limit of ours sent it."
        ));
    }
    if number != 0 {
        meanings.push(format!("Or the program itself returned {number}."));
    }
    meanings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_has_all_its_meanings() {
        let killed = exit_meanings(137).join(" ");
        for part in ["memory", "SIGKILL", "returned 137"] {
            assert!(killed.contains(part), "{killed}");
        }
        assert_eq!(exit_meanings(3), ["Or the program itself returned 3."]);
        assert_eq!(exit_meanings(0), ["The program ended well."]);
    }

    #[test]
    fn a_code_that_is_none_leads_to_those_that_are_near() {
        let codes = catalogue::codes();
        let words = unknown("queue.fool", &codes).words();
        assert!(words.contains("queue.full"), "{words}");
        let words = unknown("nonsense", &codes).words();
        assert!(words.contains("lists all codes"), "{words}");
    }
}
