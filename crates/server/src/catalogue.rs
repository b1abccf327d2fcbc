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
