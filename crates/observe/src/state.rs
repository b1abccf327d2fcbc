//! `tracestate`: what other systems want passed on. Checked whole and passed on unchanged; one bad member, and none of it is.

/// The recommendation's bounds.
const MEMBERS: usize = 32;
const LONG_MEMBER: usize = 128;
/// What has to be passed on at least, and is here at most.
const TOTAL: usize = 512;

/// The value to pass on, from all headers of that name.
pub(crate) fn read<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for header in headers {
        for member in std::str::from_utf8(header).ok()?.split(',') {
            let member = member.trim_matches([' ', '\t']);
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let is_new = members.iter().all(|known| key_of(known) != key);
            if !is_new || !is_key(key) || !is_value(value) || members.len() == MEMBERS {
                return None;
            }
            members.push(member);
        }
    }
    shorten(&mut members);
    (!members.is_empty()).then(|| members.join(","))
}

/// Long members go first, then those that were added longest ago.
fn shorten(members: &mut Vec<&str>) {
    while length(members) > TOTAL {
        match members
            .iter()
            .rposition(|member| member.len() > LONG_MEMBER)
        {
            Some(long) => drop(members.remove(long)),
            None => drop(members.pop()),
        }
    }
}

fn length(members: &[&str]) -> usize {
    let commas = members.len().saturating_sub(1);
    members.iter().map(|member| member.len()).sum::<usize>() + commas
}

fn key_of(member: &str) -> &str {
    member.split_once('=').map_or(member, |(key, _)| key)
}

fn is_key(key: &str) -> bool {
    match key.split_once('@') {
        None => is_name(key, 256, First::Letter),
        Some((tenant, system)) => {
            is_name(tenant, 241, First::LetterOrDigit) && is_name(system, 14, First::Letter)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Letter,
    LetterOrDigit,
}

fn is_name(name: &str, most: usize, first: First) -> bool {
    let begins = name.bytes().next().is_some_and(|byte| {
        byte.is_ascii_lowercase() || first == First::LetterOrDigit && byte.is_ascii_digit()
    });
    let may_stand =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte);
    begins && name.len() <= most && name.bytes().all(may_stand)
}

fn is_value(value: &str) -> bool {
    let may_stand = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(may_stand) && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Option<String> {
        read([text.as_bytes()])
    }

    #[test]
    fn what_is_well_formed_is_passed_on_and_the_rest_is_not() {
        for good in [
            "a=1",
            "rojo=1,congo=2",
            "fw529a3039@dt=FfffffCfffffffE",
            "0tenant@sys=x",
            "a*-_/9=~!@#$%^&()",
        ] {
            assert_eq!(one(good).as_deref(), Some(good));
        }
        let long_key = format!("{}=1", "a".repeat(257));
        let long_value = format!("a={}", "1".repeat(257));
        let many: Vec<_> = (0..33).map(|n| format!("a{n}=1")).collect();
        let many = many.join(",");
        for bad in [
            "a",
            "=1",
            "a=",
            "A=1",
            "0a=1",
            "a=1=2",
            "a=1,a=2",
            "a@=1",
            "@a=1",
            "a@1b=1",
            "a@b@c=1",
            "a=ä",
            "a=1,b",
            long_key.as_str(),
            long_value.as_str(),
            many.as_str(),
        ] {
            assert_eq!(one(bad), None, "{bad}");
        }
    }

    #[test]
    fn space_and_empty_members_mean_nothing_and_headers_add_up() {
        let headers: [&[u8]; 3] = [b" a=1 ,\t, b=2", b"", b"c=3,"];
        assert_eq!(read(headers).as_deref(), Some("a=1,b=2,c=3"));
        assert_eq!(one(" , "), None);
        assert_eq!(read([]), None);
    }

    #[test]
    fn what_is_too_long_loses_its_longest_and_then_its_oldest_members() {
        let long = format!("long={}", "x".repeat(200));
        let short: Vec<_> = (0..5).map(|n| format!("s{n}={}", "y".repeat(90))).collect();
        let kept = one(&format!("{long},{}", short.join(","))).unwrap();
        assert_eq!(kept, short.join(","));
        let short: Vec<_> = (0..6).map(|n| format!("s{n}={}", "y".repeat(90))).collect();
        assert_eq!(one(&short.join(",")).unwrap(), short[..5].join(","));
    }
}
