//! Patterns over command lines: `*`, `?` and `[…]`, as in a shell; letters count as they are written. There is no escape: `[*]` is a star.
//!
//! A pattern without any of these means what begins with it.

use memchr::memmem;

use crate::error::StoreError;

/// In characters. Time is bounded by the length of the pattern times that of the line.
const LONGEST: usize = 1024;

#[derive(Debug, Clone)]
pub(crate) struct Glob {
    tokens: Vec<Token>,
    /// What every match begins with.
    prefix: String,
    /// The longest text that every match contains.
    literal: String,
    finder: memmem::Finder<'static>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Exactly(char),
    One,
    Any,
    OneOf {
        ranges: Vec<(char, char)>,
        sense: Sense,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sense {
    Inside,
    Outside,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Result<Self, StoreError> {
        if pattern.chars().count() > LONGEST {
            return Err(StoreError::Invalid {
                field: "command",
                value: format!("{}…", pattern.chars().take(40).collect::<String>()),
                why: format!("a pattern has at most {LONGEST} characters"),
            });
        }
        let mut tokens = parse(pattern);
        if tokens
            .iter()
            .all(|token| matches!(token, Token::Exactly(_)))
            && !pattern.contains('[')
        {
            tokens.push(Token::Any);
        }
        let literal = longest_literal(&tokens);
        Ok(Self {
            prefix: tokens.iter().map_while(Token::literal).collect(),
            finder: memmem::Finder::new(literal.as_bytes()).into_owned(),
            literal,
            tokens,
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn literal(&self) -> &str {
        &self.literal
    }

    /// Whether every line that begins with the prefix matches.
    pub(crate) fn is_prefix_only(&self) -> bool {
        let literals = self.tokens.iter().map_while(Token::literal).count();
        self.tokens.get(literals..) == Some(&[Token::Any])
    }

    pub(crate) fn matches(&self, line: &str) -> bool {
        self.matches_bytes(line.as_bytes())
    }

    /// Most lines are refused before it is asked whether they are UTF-8.
    pub(crate) fn matches_bytes(&self, line: &[u8]) -> bool {
        line.starts_with(self.prefix.as_bytes())
            && self.finder.find(line).is_some()
            && std::str::from_utf8(line).is_ok_and(|line| self.matches_whole(line))
    }

    /// Goes back only to the last star: what an earlier star took needs no second thought.
    fn matches_whole(&self, line: &str) -> bool {
        let mut rest = line.chars();
        let mut at = 0;
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            match self.tokens.get(at) {
                Some(Token::Any) => {
                    at += 1;
                    if at == self.tokens.len() {
                        return true;
                    }
                    star = Some((at, rest.clone()));
                    continue;
                }
                Some(token) => {
                    let mut ahead = rest.clone();
                    if ahead.next().is_some_and(|c| token.fits(c)) {
                        rest = ahead;
                        at += 1;
                        continue;
                    }
                }
                None if rest.as_str().is_empty() => return true,
                None => {}
            }
            let Some((after, taken)) = &mut star else {
                return false;
            };
            if taken.next().is_none() {
                return false;
            }
            at = *after;
            rest = taken.clone();
        }
    }
}

impl Token {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::Exactly(expected) => *expected == c,
            Self::One | Self::Any => true,
            Self::OneOf { ranges, sense } => {
                let inside = ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
                inside == (*sense == Sense::Inside)
            }
        }
    }

    fn literal(&self) -> Option<char> {
        match self {
            Self::Exactly(c) => Some(*c),
            Self::One | Self::Any | Self::OneOf { .. } => None,
        }
    }
}

fn parse(pattern: &str) -> Vec<Token> {
    let characters: Vec<char> = pattern.chars().collect();
    let mut tokens: Vec<Token> = Vec::new();
    let mut rest = characters.as_slice();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let token = match first {
            '*' => Token::Any,
            '?' => Token::One,
            '[' => match parse_set(after) {
                Some((set, after)) => {
                    rest = after;
                    set
                }
                None => Token::Exactly('['),
            },
            other => Token::Exactly(*other),
        };
        if token != Token::Any || tokens.last() != Some(&Token::Any) {
            tokens.push(token);
        }
    }
    tokens
}

/// What follows `[`, up to `]`. A `]` that comes first is one of the set. `None` without an end: then `[` is itself.
fn parse_set(from: &[char]) -> Option<(Token, &[char])> {
    let (sense, from) = match from.split_first()? {
        ('!' | '^', after) => (Sense::Outside, after),
        _ => (Sense::Inside, from),
    };
    let end = from.iter().skip(1).position(|c| *c == ']')? + 1;
    let (set, after) = from.split_at_checked(end)?;
    let (_, after) = after.split_first()?;
    let mut ranges = Vec::new();
    let mut rest = set;
    loop {
        match rest {
            [] => break,
            [low, '-', high, after @ ..] => {
                ranges.push((*low, *high));
                rest = after;
            }
            [one, after @ ..] => {
                ranges.push((*one, *one));
                rest = after;
            }
        }
    }
    Some((Token::OneOf { ranges, sense }, after))
}

fn longest_literal(tokens: &[Token]) -> String {
    let pieces = tokens.split(|token| token.literal().is_none());
    let texts = pieces.map(|piece| piece.iter().filter_map(Token::literal).collect::<String>());
    texts.max_by_key(|text| text.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, line: &str) -> bool {
        Glob::new(pattern).is_ok_and(|glob| glob.matches(line))
    }

    #[test]
    fn patterns_mean_what_a_shell_means() {
        for (pattern, line) in [
            ("cargo", "cargo test"),
            ("", "anything"),
            ("*", ""),
            ("*test*", "cargo test --all"),
            ("cargo *--all", "cargo test --all"),
            ("?argo*", "cargo"),
            ("é?*", "éé"),
            ("[ck]argo*", "kargo"),
            ("[!x]argo*", "cargo"),
            ("[a-d]*", "cargo"),
            ("[]x]y", "]y"),
            ("[*]x", "*x"),
            ("[-a]x", "-x"),
            ("a[", "a["),
            ("100%*", "100% sure"),
            ("*\0*", "a\0b"),
            ("*ab*ab", "abxab"),
        ] {
            assert!(matches(pattern, line), "{pattern} {line}");
        }
        for (pattern, line) in [
            ("cargo", "Cargo test"),
            ("cargo", "my cargo"),
            ("cargo*x", "cargo xy"),
            ("?", ""),
            ("?", "ab"),
            ("[!c]argo", "cargo"),
            ("[a-b]*", "cargo"),
            ("a[", "a[b"),
            ("%", "anything"),
            ("_argo*", "cargo"),
        ] {
            assert!(!matches(pattern, line), "{pattern} {line}");
        }
    }

    #[test]
    fn a_pattern_has_an_end_and_its_time_a_bound() {
        assert!(Glob::new(&"x".repeat(LONGEST + 1)).is_err());
        let nasty = format!("{}b", "*a".repeat(500));
        assert!(!matches(&nasty, &"a".repeat(4096)));
    }

    #[test]
    fn the_parts_that_an_index_can_use() {
        let parts = |pattern: &str| {
            let glob = Glob::new(pattern).unwrap();
            (
                glob.prefix().to_owned(),
                glob.literal().to_owned(),
                glob.is_prefix_only(),
            )
        };
        assert_eq!(parts("abc"), ("abc".into(), "abc".into(), true));
        assert_eq!(parts("abc*"), ("abc".into(), "abc".into(), true));
        assert_eq!(parts("a*bcd*e"), ("a".into(), "bcd".into(), false));
        assert_eq!(parts("*"), (String::new(), String::new(), true));
    }

    proptest! {
        #[test]
        fn a_line_that_is_made_from_a_pattern_matches_it(parts in proptest::collection::vec("[a-c ]{0,4}", 1..6), fill in "[a-c ]{0,4}") {
            let pattern = parts.join("*") + "*";
            prop_assert!(matches(&pattern, &(parts.join(&fill) + &fill)));
        }

        #[test]
        fn nothing_panics(pattern in any::<String>(), line in any::<String>()) {
            let _ = matches(&pattern, &line);
        }
    }
}
