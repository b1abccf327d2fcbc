//! Values that stand after a name: `API_KEY=…`, `"password": "…"`, `token: …`, `X-Api-Key: …`, `Authorization: …`. Asked at the byte after the name.

use memchr::memmem;

use super::bytes::{FIELD, HEADER, LINE, MARK, Not, Secret, Until, VALUE, Verdict, View, WORD, is};
use super::names::{self, Kind};

/// How far back a name is read.
pub(super) const LONGEST_NAME: usize = 64;

/// How much of a value is looked at to judge it.
const VALUE_LOOK: usize = 256;

/// The same where the form leaves doubt.
const LOOSE_LOOK: usize = 64;

/// White space on either side of the separator.
const MOST_SPACES: usize = 8;

/// Words that are no secrets: types, and what is said about one.
const NO_SECRETS: [&str; 28] = [
    "true",
    "false",
    "null",
    "none",
    "nil",
    "undefined",
    "yes",
    "no",
    "string",
    "str",
    "bool",
    "boolean",
    "int",
    "integer",
    "number",
    "bytes",
    "any",
    "object",
    "required",
    "optional",
    "missing",
    "invalid",
    "expired",
    "empty",
    "unset",
    "set",
    "valid",
    "incorrect",
];

/// Names of ways to authenticate, which stand before the secret in the header.
const SCHEMES: [&str; 9] = [
    "bearer",
    "basic",
    "token",
    "digest",
    "apikey",
    "negotiate",
    "ntlm",
    "aws4-hmac-sha256",
    "key",
];

/// How sure the form makes it that what follows is the value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `NAME=value`, with nothing between.
    Tight,
    /// `name: value`, `name = value`: a configuration file, source code, or a sentence.
    Loose,
}

struct Separator {
    form: Form,
    value: usize,
}

/// A secret in the value after the name that ends before `name_end`.
pub(super) fn find(view: View<'_>, name_end: usize) -> Verdict {
    let separator = separator(view, name_end)?;
    let name_start = name_start(view, name_end);
    let name = view.slice(name_start, name_end);
    let kind = names::kind_of(name).ok_or(Not::Here)?;
    if kind == Kind::Authorization {
        return authorization(view, separator.value);
    }
    let opening = opening(view, separator.value)?;
    let form = match is_header(name) {
        true => Form::Tight,
        false => separator.form,
    };
    if opening.until.is_some() || form == Form::Tight {
        surely(view, &opening, kind, name_start, name)
    } else {
        perhaps(view, opening.from, kind, name)
    }
}

fn separator(view: View<'_>, name_end: usize) -> Result<Separator, Not> {
    let quoted = match view.at(name_end)?.ok_or(Not::Here)? {
        b'"' | b'\'' => 1,
        b'\\' if matches!(view.at(name_end + 1)?, Some(b'"' | b'\'')) => 2,
        _ => 0,
    };
    let closed = name_end + quoted;
    let at = spaces(view, closed)?;
    let next = |offset: usize| view.at(at + offset);
    let (after, sign) = match view.at(at)?.ok_or(Not::Here)? {
        b'=' => match next(1)? {
            Some(b'=' | b'~') => return Err(Not::Here),
            Some(b'>') => (at + 2, b':'),
            _ => (at + 1, b'='),
        },
        b':' => match next(1)? {
            Some(b':' | b'/') => return Err(Not::Here),
            Some(b'=') => (at + 2, b':'),
            _ => (at + 1, b':'),
        },
        b'%' if view.has_any_case(at, b"%3D")? || view.has_any_case(at, b"%3A")? => (at + 3, b'='),
        _ => return Err(Not::Here),
    };
    let value = spaces(view, after)?;
    let tight = sign == b'=' && at == closed && value == after;
    let form = if tight { Form::Tight } else { Form::Loose };
    Ok(Separator { form, value })
}

fn spaces(view: View<'_>, from: usize) -> Result<usize, Not> {
    view.run_while(from, MOST_SPACES, |byte| matches!(byte, b' ' | b'\t'))
}

fn name_start(view: View<'_>, name_end: usize) -> usize {
    let least = name_end.saturating_sub(LONGEST_NAME).max(view.floor);
    let name = view.slice(least, name_end);
    let length = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        .count();
    name_end - length
}

fn is_header(name: &[u8]) -> bool {
    name.get(..2)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"x-"))
}

/// Where a value begins, and the quote it is in.
struct Opening {
    from: usize,
    until: Option<Until>,
}

fn opening(view: View<'_>, at: usize) -> Result<Opening, Not> {
    let quote = |byte: u8| matches!(byte, b'"' | b'\'' | b'`');
    let (length, until) = match view.at(at)?.ok_or(Not::Here)? {
        byte if quote(byte) => (1, Some(Until::Quote(byte))),
        b'\\' => match view.at(at + 1)? {
            Some(byte) if quote(byte) => (2, Some(Until::EscapedQuote(byte))),
            _ => (0, None),
        },
        _ => (0, None),
    };
    Ok(Opening {
        from: at + length,
        until,
    })
}

/// The form leaves no doubt that this is a value: everything is a secret but what is plainly not.
fn surely(
    view: View<'_>,
    opening: &Opening,
    kind: Kind,
    name_start: usize,
    name: &[u8],
) -> Verdict {
    let from = opening.from;
    let until = opening
        .until
        .unwrap_or_else(|| bare_end(view, name_start, name));
    let end = match until {
        Until::Quote(quote) | Until::EscapedQuote(quote) => {
            view.run_while(from, VALUE_LOOK, |byte| {
                !matches!(byte, b'\n' | b'\\') && byte != quote
            })?
        }
        Until::Class(class) => view.run(from, class, VALUE_LOOK)?,
        Until::Length(_) | Until::PemEnd(_) => return Err(Not::Here),
    };
    let value = view.slice(from, end);
    let escaped = matches!(until, Until::Quote(_)) && view.at(end)? == Some(b'\\');
    if (value.is_empty() && !escaped) || is_no_secret(view, from, value)? {
        return Err(Not::Here);
    }
    let short_number = value.len() < 6 && value.iter().all(u8::is_ascii_digit);
    let path = value
        .first()
        .is_some_and(|byte| matches!(byte, b'/' | b'~' | b'.'));
    match kind {
        Kind::Issued | Kind::Vague if short_number => Err(Not::Here),
        Kind::BarePwd if path => Err(Not::Here),
        _ if value.eq_ignore_ascii_case(name) => Err(Not::Here),
        _ => Ok(Secret { from, until }),
    }
}

/// How far a value without quotes reaches: to white space in a line like those of `env`, to `;` in a connection string, else to whatever separates values.
fn bare_end(view: View<'_>, name_start: usize, name: &[u8]) -> Until {
    let shouted = !name.iter().any(u8::is_ascii_lowercase);
    let exported = view
        .slice(name_start.saturating_sub(7), name_start)
        .eq_ignore_ascii_case(b"export ");
    match view.before(name_start) {
        b'\n' if shouted => Until::Class(WORD),
        b' ' if shouted && exported => Until::Class(WORD),
        b';' if !shouted => Until::Class(FIELD),
        _ => Until::Class(VALUE),
    }
}

/// It may be a value, a type or a word of a sentence: only what looks like a secret is one.
fn perhaps(view: View<'_>, from: usize, kind: Kind, name: &[u8]) -> Verdict {
    // A placeholder that begins within what is judged is seen whole.
    let seen = view.run(from, VALUE, LOOSE_LOOK + MARK.len())?;
    let end = seen.min(from + LOOSE_LOOK);
    let value = view.slice(from, end);
    let replaced = memmem::find(view.slice(from, seen), b"[REDACTED").is_some();
    if replaced || is_no_secret(view, from, value)? || repeats(value, name) {
        return Err(Not::Here);
    }
    let traits = Traits::of(value);
    let code = traits.is_code() || view.at(end)? == Some(b';');
    let found = match kind {
        Kind::Password => {
            let filled =
                !code && (value.len() == LOOSE_LOOK || (traits.digits > 0 && value.len() >= 4));
            filled || fills_line(view, from, end)?
        }
        Kind::Issued => !code && traits.is_random(),
        Kind::Vague | Kind::Authorization | Kind::BarePwd => false,
    };
    match found {
        true => Ok(Secret {
            from,
            until: Until::Class(VALUE),
        }),
        false => Err(Not::Here),
    }
}

/// What a value consists of. Counted in one pass, since hostile output asks for this at every sixth byte.
#[derive(Default)]
struct Traits {
    length: usize,
    digits: usize,
    upper: usize,
    lower: usize,
    underscores: usize,
    dots: usize,
    brackets: usize,
    double_colons: usize,
}

impl Traits {
    fn of(value: &[u8]) -> Self {
        let mut traits = Self {
            length: value.len(),
            ..Self::default()
        };
        let mut before = 0;
        for byte in value {
            match byte {
                b'0'..=b'9' => traits.digits += 1,
                b'A'..=b'Z' => traits.upper += 1,
                b'a'..=b'z' => traits.lower += 1,
                b'_' => traits.underscores += 1,
                b'.' => traits.dots += 1,
                b'(' | b'[' => traits.brackets += 1,
                b':' if before == b':' => traits.double_colons += 1,
                _ => {}
            }
            before = *byte;
        }
        traits
    }

    /// A call, an array, a path, or an identifier like `node.next_token2`: words joined by `_`, all in one case, with two digits at most.
    fn is_code(&self) -> bool {
        let letters = self.upper + self.lower;
        let plain = letters + self.digits + self.underscores + self.dots == self.length;
        let one_case = self.upper == 0 || self.lower == 0;
        let identifier = plain && one_case && self.underscores > 0 && self.digits <= 2;
        identifier || self.brackets > 0 || self.double_colons > 0
    }

    fn is_random(&self) -> bool {
        let letters = self.upper + self.lower;
        let mixed = self.digits > 0 && letters > 0 && self.length >= 6;
        mixed || (self.length >= 20 && letters + self.digits == self.length)
    }
}

/// `self.password = password`, `password = args.password`.
fn repeats(value: &[u8], name: &[u8]) -> bool {
    let field = |of: &[u8]| of.len() - memchr::memrchr(b'.', of).map_or(0, |dot| dot + 1);
    let (of_value, of_name) = (field(value), field(name));
    let end = |of: &[u8], length: usize| {
        of.get(of.len() - length..)
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    of_value == of_name && end(value, of_value) == end(name, of_name)
}

/// Whether the value is one word and the line ends after it, as in YAML.
fn fills_line(view: View<'_>, from: usize, end: usize) -> Result<bool, Not> {
    let after = view.run_while(end, MOST_SPACES, |byte| {
        matches!(byte, b' ' | b'\t' | b'\r')
    })?;
    let ended = matches!(view.at(after)?, None | Some(b'\n'));
    let last_is_plain =
        is(view.before(end), VALUE) && !matches!(view.before(end), b'(' | b'{' | b'[');
    Ok(ended && end - from >= 4 && last_is_plain)
}

/// The value of `Authorization`, with the name of the scheme left in its place.
fn authorization(view: View<'_>, at: usize) -> Verdict {
    let opening = opening(view, at)?;
    let word_end = view.run(opening.from, super::bytes::KEYLIKE, VALUE_LOOK)?;
    let word = view.slice(opening.from, word_end);
    let scheme = SCHEMES
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()));
    let after = spaces(view, word_end)?;
    let from = if scheme && after > word_end {
        after
    } else {
        opening.from
    };
    let value_end = view.run(from, super::bytes::BEARER, VALUE_LOOK)?;
    let value = view.slice(from, value_end);
    if value.is_empty() || is_no_secret(view, from, value)? {
        return Err(Not::Here);
    }
    let digit = value.iter().any(u8::is_ascii_digit);
    if from == opening.from && value.len() < if digit { 6 } else { 16 } {
        return Err(Not::Here);
    }
    let rest = match word.eq_ignore_ascii_case(b"digest") {
        true => LINE,
        false => HEADER,
    };
    let until = opening.until.unwrap_or(Until::Class(rest));
    Ok(Secret { from, until })
}

/// The placeholder itself, a reference to a variable, `<password>`, stars, `true` and the like; and a private key, which has a matcher of its own.
fn is_no_secret(view: View<'_>, from: usize, value: &[u8]) -> Result<bool, Not> {
    if view.has(from, MARK)? || view.has(from, b"-----BEGIN ")? {
        return Ok(true);
    }
    let refers = match value {
        [b'$', b'{' | b'(' | b'[' | b'_' | b'A'..=b'Z', ..] | [b'{', b'{', ..] => true,
        [b'*', rest @ ..] => rest.iter().all(|byte| *byte == b'*'),
        _ => false,
    };
    let said = NO_SECRETS
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    Ok(refers || said || is_blank_to_fill(view, from)?)
}

/// `<password>`, also after what is within was replaced.
fn is_blank_to_fill(view: View<'_>, from: usize) -> Result<bool, Not> {
    if view.at(from)? != Some(b'<') {
        return Ok(false);
    }
    let end = view.run_while(from + 1, 48, |byte| {
        byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b' ' | b'[' | b']')
    })?;
    Ok(view.at(end)? == Some(b'>'))
}
