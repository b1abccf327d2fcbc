//! Taking secrets out of what a program wrote, before it is kept.
//!
//! What is replaced becomes `[REDACTED]`; what stands around it stays. Redacting twice changes nothing and counts nothing. The output does not depend on how the input was cut into
//! pieces, and at most [`MOST_HELD`] bytes are held back.
//!
//! Three sorts of secrets are looked for, in this order:
//!
//! - **Known values**: those of the run's sensitive variables, wherever they stand. Not those under 6 bytes. Of values with several lines, each line.
//! - **Patterns** of the user: regular expressions on bytes, within one line. A match of up to 4 KiB is always found; in lines over 8 KiB a longer one may not be. Placeholders are
//!   invisible to them. Redacting twice is harmless unless a pattern asks what stands around a match (`^`, `$`, `\b`), or a line has over 8 KiB.
//! - **Built-in families**, by hand-written matchers behind a filter, since a run cannot wait for regular expressions to be compiled:
//!
//! | family | what is replaced |
//! | --- | --- |
//! | 1 `NAME=value` | the value after a name whose last word is PASSWORD, PASSWD, PASSPHRASE, PWD, SECRET, TOKEN, CREDENTIAL(S), or KEY with a word before it (`api_key`, `apiKey`, `X-Api-Key`, `apikey`; not `key`, `public_key`, `primary_key`); `_PASS` and `_AUTH` with a word before them. In any case of letters. See below for the forms |
//! | 2 bearer | the value of an `Authorization` header, after its scheme, or of 6 characters with a digit or of 16 without a scheme; after `Bearer` a token of 8 characters with a digit, or of 32; a JSON web token `eyJ….….…` anywhere |
//! | 3 AWS access key | `AKIA` or `ASIA` and exactly 16 capitals or digits |
//! | 4 AWS secret key | as 1: `aws_secret_access_key`, `SecretAccessKey` |
//! | 5 connection strings | as 1: `Password=…;`, `pwd=…;`. After `;` the value goes to the next `;`, with blanks |
//! | 6 GitHub | `ghp_`, `gho_`, `ghu_`, `ghs_`, `ghr_` and 36 letters or digits at least; `github_pat_` and 22 |
//! | 7 keys in URLs | as 1: `?api_key=…&`, also with `%3D` or `%3A` for the separator |
//! | 8 private keys | from `-----BEGIN … PRIVATE KEY-----` and a line end (also `\n` in a string) to the end of the END line, whatever is between. Without an END it goes to the end of the output, or until 8 lines in a row cannot belong to a key: neither base64 alone nor with 32 characters of it in a row |
//! | 9 sk- keys | `sk-` and 20 of `[A-Za-z0-9_-]` at least, with a digit and ten letters or digits in a row; `sk_live_`, `sk_test_`, `rk_live_`, `rk_test_` and 16 letters or digits |
//! | 10 Slack | `xoxb-`, `xoxa-`, `xoxp-`, `xoxr-`, `xoxs-` and 10 of `[A-Za-z0-9_-]` |
//! | 11 Google | `AIza` and 35 of `[A-Za-z0-9_-]` at least |
//! | 12 URLs | the password in `scheme://user:password@host`, if both have less than 1 KiB |
//!
//! Families 3, 6, 9, 10, 11 and the web token need a byte before them that is no letter or digit; `sk-` and the web token, also no `-` or `_`.
//!
//! Forms of family 1. The name may be in quotes; the separator is `=`, `:`, `=>`, `:=`, `%3D` or `%3A`, with up to 8 blanks on each side, on one line.
//! - A value in quotes (also `\"` within JSON within a string) is replaced to its closing quote or the end of the line.
//! - After `=` without blanks, and after a header `X-…:`, the value is replaced to the next blank, quote or one of `&;,)]}<>|\`; in a line that begins with a name in capitals, like
//!   those of `env` and `export`, to the next blank.
//! - Elsewhere (`token: abc`, `password = abc`) it may be code or a sentence. Replaced is: after a password name, a value with a digit and 4 characters, or of 4 characters that
//!   ends the line, or of 64; after the others, one with a digit, a letter and 6 characters, or 20 letters. Not what reads like code: an identifier with `_`, a call, a path with `::`, an array, a field of the same name, or what `;` follows. `_PASS` and `_AUTH` do not count here.
//! - Never replaced: `true`, `null`, `string`, `required` and the like, `$NAME`, `${…}`, `$(…)`, `{{…`, `<password>`, `***`, numbers of up to 5 digits (unless a password), a value that
//!   repeats the name, and what follows `PWD=` if it begins like a path.
//!
//! Not found: secrets that are encoded (base64, compressed), split over lines, or in UTF-16; names longer than 64 bytes, of which the last 64 count.

mod assign;
mod bytes;
mod literals;
mod names;
mod patterns;
mod rules;
mod scan;
mod stream;
mod tokens;
mod values;

#[cfg(test)]
mod tests;

pub use bytes::PLACEHOLDER;
pub use names::is_sensitive_name;
pub use rules::{LONGEST_PATTERN, LONGEST_VALUE, MOST_PATTERNS, Rules, SHORTEST_VALUE};
pub use stream::{MOST_HELD, Redactor};
pub use values::{redact_arguments, redact_json, redact_text};
