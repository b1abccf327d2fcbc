//! Every code that an error of ours carries, on the command line and over HTTP: what it means, what to do, and with which status the daemon answers.

use cofferdam_contract::codes::ErrorCode;
use serde::Serialize;

use crate::fault::{Refusal, status_of};

/// What is known about a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Explained {
    pub code: &'static str,
    /// What the command line exits with; `None` for what only the daemon says.
    pub exit_code: Option<u8>,
    pub http_status: u16,
    pub meaning: &'static str,
    pub what_to_do: &'static str,
}

/// In the order of their names.
pub fn codes() -> Vec<Explained> {
    let everywhere = ErrorCode::ALL.into_iter().map(|code| Explained {
        code: code.as_str(),
        exit_code: Some(code.exit_code()),
        http_status: status_of(code).as_u16(),
        meaning: code.meaning(),
        what_to_do: code.what_to_do(),
    });
    let daemon = Refusal::ALL.into_iter().map(|refusal| {
        let fault = refusal.because("");
        Explained {
            code: fault.code,
            exit_code: None,
            http_status: fault.status.as_u16(),
            meaning: fault.description,
            what_to_do: fault.solution,
        }
    });
    let mut codes: Vec<Explained> = everywhere.chain(daemon).collect();
    codes.sort_unstable_by_key(|explained| explained.code);
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_there_once_with_a_status_of_an_error() {
        let codes = codes();
        assert_eq!(codes.len(), ErrorCode::ALL.len() + Refusal::ALL.len());
        for pair in codes.windows(2) {
            assert!(pair[0].code < pair[1].code, "{pair:?}");
        }
        for explained in &codes {
            assert!((400..600).contains(&explained.http_status), "{explained:?}");
            assert!(explained.what_to_do.ends_with('.'), "{explained:?}");
        }
    }

    /// The names of an enum's variants, as the source has them.
    fn variants<'a>(source: &'a str, head: &str) -> Vec<&'a str> {
        let (_, body) = source.split_once(head).unwrap();
        let (body, _) = body.split_once("\n}").unwrap();
        let lines = body.lines().map(str::trim);
        let names = lines.filter_map(|line| line.strip_suffix(','));
        names
            .filter(|name| name.chars().all(char::is_alphanumeric))
            .collect()
    }

    #[test]
    fn every_code_that_can_be_made_is_in_the_catalogue_and_every_one_in_it_is_made() {
        let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let read = |path: &str| std::fs::read_to_string(format!("{crates}/{path}")).unwrap();
        let (codes_file, fault_file) = ("contract/src/codes.rs", "server/src/fault.rs");
        let (codes_text, fault_text) = (read(codes_file), read(fault_file));
        let everywhere = variants(&codes_text, "pub enum ErrorCode {");
        let daemon = variants(&fault_text, "pub(crate) enum Refusal {");
        assert_eq!(everywhere.len(), ErrorCode::ALL.len(), "{everywhere:?}");
        assert_eq!(daemon.len(), Refusal::ALL.len(), "{daemon:?}");
        // A code that nothing makes would be a promise to nobody.
        let mut source = String::new();
        let mut dirs = vec![std::path::PathBuf::from(crates)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let is_definition = path.ends_with(codes_file) || path.ends_with(fault_file);
                if path.is_dir() && !path.ends_with("tests") {
                    dirs.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") && !is_definition {
                    source.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let is_made = |of: &str, name: &str| {
            let text = format!("{of}::{name}");
            let after = |(at, _): (usize, &str)| source[at + text.len()..].chars().next();
            let mut found = source.match_indices(&text).filter_map(after);
            found.any(|next| !next.is_alphanumeric())
        };
        let unmade = |of: &str, names: &[&str]| -> Vec<String> {
            let unmade = names.iter().filter(|name| !is_made(of, name));
            unmade.map(ToString::to_string).collect()
        };
        // The engine says so of itself, where it has the definition at hand: `SetupFailure::code`.
        let own = |name: &String| !name.starts_with("Program") && name != "SandboxSetupFailed";
        let mut never = unmade("ErrorCode", &everywhere);
        never.retain(own);
        assert_eq!(never, Vec::<String>::new());
        assert_eq!(unmade("Refusal", &daemon), Vec::<String>::new());
    }

    #[test]
    fn the_description_of_the_api_has_every_code() {
        let document: serde_json::Value =
            serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
        let listed = &document["components"]["schemas"]["Error"]["properties"]["error_code"];
        let listed: std::collections::BTreeSet<&str> = listed["examples"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|code| code.as_str())
            .collect();
        let all = codes().into_iter().map(|explained| explained.code);
        assert_eq!(listed, all.collect());
    }

    const HEAD: &str = "| code | HTTP | meaning | what to do |\n| --- | --- | --- | --- |\n";

    /// The table of the page is made from here: `COFFERDAM_BLESS=1` writes it.
    #[test]
    fn the_page_of_codes_has_every_one_as_the_program_says_it() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows = codes().into_iter().map(|explained| {
            let Explained {
                code,
                http_status,
                meaning,
                what_to_do,
                ..
            } = explained;
            format!("| `{code}` | {http_status} | {meaning} | {what_to_do} |\n")
        });
        let rows: String = rows.collect();
        let (before, rest) = page.split_once(HEAD).unwrap();
        let (table, after) = rest.split_once("\n\n").unwrap();
        if std::env::var_os("COFFERDAM_BLESS").is_some() {
            let page = format!("{before}{HEAD}{rows}\n{after}");
            std::fs::write(path, page).unwrap();
            return;
        }
        assert_eq!(format!("{table}\n"), rows);
    }
}
