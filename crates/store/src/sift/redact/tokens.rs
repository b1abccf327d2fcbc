//! Secrets that show themselves by their form: issued keys, bearer tokens, private keys, passwords in URLs. Asked at the third byte of what gives them away.

use memchr::{memchr, memmem, memrchr};

use super::bytes::{ALNUM, BEARER, Body, KEYLIKE, MARK, Not, Secret, Until, Verdict, View, is};

/// How far the first part of a JSON web token, or the name and password in a URL, may reach.
const FAR: usize = 1024;

/// `AKIA` or `ASIA` and 16 capitals or digits, with nothing of the kind around it. Asked at the second `A`.
pub(super) fn aws_access_key(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 3)?;
    if !matches!(view.slice(from, at + 1), b"AKIA" | b"ASIA") {
        return Err(Not::Here);
    }
    let end = view.run_while(at + 1, 17, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit()
    })?;
    let alone = view.at(end)?.is_none_or(|byte| !is(byte, ALNUM));
    if end - from != 20 || !alone {
        return Err(Not::Here);
    }
    Ok(Secret {
        from,
        until: Until::Length(20),
    })
}

/// `ghp_` and its kin with 36 letters or digits at least. Asked at the third letter.
pub(super) fn github_token(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 2)?;
    if view.at(at + 1)? != Some(b'_') {
        return Err(Not::Here);
    }
    let end = view.run(at + 2, ALNUM, 36)?;
    if end - at - 2 == 36 {
        Ok(reaching(from, KEYLIKE))
    } else {
        Err(Not::Here)
    }
}

/// `github_pat_` and 22 letters, digits or `_` at least. Asked at the `p`.
pub(super) fn github_fine_grained(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 7)?;
    if view.slice(from, at) != b"github_" || !view.has(at, b"pat_")? {
        return Err(Not::Here);
    }
    let end = view.run(at + 4, KEYLIKE, 22)?;
    if end - at - 4 == 22 {
        Ok(reaching(from, KEYLIKE))
    } else {
        Err(Not::Here)
    }
}

/// `sk-` and 20 characters at least, ten of them in a row without `-` or `_`, a digit among the first 64; or `sk_live_`, `sk_test_`, `rk_live_`, `rk_test_` and 16. Asked at the
/// third byte.
pub(super) fn sk_key(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 2)?;
    if view.at(at)? == Some(b'_') {
        let live = view.has(at, b"_live_")? || view.has(at, b"_test_")?;
        let end = if live {
            view.run(at + 6, ALNUM, 16)?
        } else {
            at
        };
        return match live && end - at - 6 == 16 {
            true => Ok(reaching(from, KEYLIKE)),
            false => Err(Not::Here),
        };
    }
    if view.at(from)? != Some(b's') || matches!(view.before(from), b'-' | b'_') {
        return Err(Not::Here);
    }
    let end = view.run(at + 1, KEYLIKE, 64)?;
    let key = view.slice(at + 1, end);
    let digit = key.iter().any(u8::is_ascii_digit);
    let longest = key
        .split(|byte| matches!(byte, b'-' | b'_'))
        .map(<[u8]>::len)
        .max();
    if key.len() >= 20 && digit && longest >= Some(10) {
        Ok(reaching(from, KEYLIKE))
    } else {
        Err(Not::Here)
    }
}

/// `xoxb-` and its kin with ten characters at least. Asked at the second `x`.
pub(super) fn slack_token(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 2)?;
    let kind = matches!(view.at(at + 1)?, Some(b'b' | b'a' | b'p' | b'r' | b's'));
    if !kind || view.at(at + 2)? != Some(b'-') {
        return Err(Not::Here);
    }
    let end = view.run(at + 3, KEYLIKE, 10)?;
    if end - at - 3 == 10 {
        Ok(reaching(from, KEYLIKE))
    } else {
        Err(Not::Here)
    }
}

/// `AIza` and 35 characters at least. Asked at the `z`.
pub(super) fn google_key(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 2)?;
    if view.at(at + 1)? != Some(b'a') {
        return Err(Not::Here);
    }
    let end = view.run(at + 2, KEYLIKE, 35)?;
    if end - at - 2 == 35 {
        Ok(reaching(from, KEYLIKE))
    } else {
        Err(Not::Here)
    }
}

/// `eyJ….…`: a JSON web token, wherever it stands. Its first two parts have eight characters at least, the first 1024 at most. Asked at the `J`.
pub(super) fn json_web_token(view: View<'_>, at: usize) -> Verdict {
    let from = start(view, at, 2)?;
    // Within a run of such characters each `eyJ` would be followed for 1024 bytes.
    if matches!(view.before(from), b'-' | b'_') {
        return Err(Not::Here);
    }
    let dot = view.run(at + 1, KEYLIKE, FAR)?;
    if dot - from < 8 || view.at(dot)? != Some(b'.') {
        return Err(Not::Here);
    }
    let second = view.run(dot + 1, KEYLIKE, 8)?;
    if second - dot - 1 == 8 {
        Ok(reaching(from, BEARER))
    } else {
        Err(Not::Here)
    }
}

/// `Bearer` in any case, one or two blanks (also `%20` or `+`), and a token with a digit and eight characters, or with 32. Asked at the last `r`.
pub(super) fn bearer(view: View<'_>, at: usize) -> Verdict {
    let word = start(view, at, 5)?;
    if !view.slice(word, at + 1).eq_ignore_ascii_case(b"bearer") {
        return Err(Not::Here);
    }
    let from = match view.at(at + 1)? {
        Some(b' ') if view.at(at + 2)? == Some(b' ') => at + 3,
        Some(b' ' | b'+' | b'\t') => at + 2,
        Some(b'%') if view.has(at + 1, b"%20")? => at + 4,
        _ => return Err(Not::Here),
    };
    let end = view.run(from, BEARER, 64)?;
    let token = view.slice(from, end);
    let digit = token.iter().any(u8::is_ascii_digit);
    if (digit && token.len() >= 8) || token.len() >= 32 {
        Ok(reaching(from, BEARER))
    } else {
        Err(Not::Here)
    }
}

/// The line that begins a private key of any sort, followed by a line end, real or escaped. Asked at the `E` of `BEGIN`.
pub(super) fn private_key(view: View<'_>, at: usize) -> Verdict {
    let from = at
        .checked_sub(6)
        .filter(|from| *from >= view.floor)
        .ok_or(Not::Here)?;
    if view.slice(from, at + 1) != b"-----BE" || !view.has(at + 1, b"GIN ")? {
        return Err(Not::Here);
    }
    let end = label_end(view, at + 5)?.ok_or(Not::Here)?;
    match view.at(end)? {
        None | Some(b'\n' | b'\r' | b' ' | b'\\') => Ok(Secret {
            from,
            until: Until::PemEnd(Body::default()),
        }),
        Some(_) => Err(Not::Here),
    }
}

/// Where the dashes after `RSA PRIVATE KEY` end, if a private key is what the label names.
pub(super) fn label_end(view: View<'_>, from: usize) -> Result<Option<usize>, Not> {
    let end = view.run_while(from, 48, |byte| {
        byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' '
    })?;
    let label = view.slice(from, end);
    let private = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    Ok((private && view.has(end, b"-----")?).then_some(end + 5))
}

/// The password in `scheme://user:password@host`. Asked at the second `/`.
pub(super) fn url_password(view: View<'_>, at: usize) -> Verdict {
    if !view.before(at.saturating_sub(2)).is_ascii_alphanumeric() {
        return Err(Not::Here);
    }
    let end = view.run_while(at + 1, FAR, |byte| {
        !matches!(
            byte,
            0..=b' ' | b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | 0x7f
        )
    })?;
    let authority = view.slice(at + 1, end);
    let host = memrchr(b'@', authority).ok_or(Not::Here)?;
    let userinfo = authority.get(..host).unwrap_or_default();
    let colon = memchr(b':', userinfo).ok_or(Not::Here)?;
    let (user, password) = userinfo.split_at_checked(colon).ok_or(Not::Here)?;
    let password = password.get(1..).unwrap_or_default();
    if !is_user(user) || password.is_empty() || is_reference(password) {
        return Err(Not::Here);
    }
    let from = at + 2 + colon;
    Ok(Secret {
        from,
        until: Until::Length(password.len()),
    })
}

/// Nothing in it may look like a name and a value, or both matchers would want the rest.
fn is_user(user: &[u8]) -> bool {
    let plain = |byte: &u8| {
        is(*byte, KEYLIKE)
            || matches!(
                byte,
                b'.' | b'~' | b'+' | b'!' | b'$' | b'*' | b'@' | b'%' | 0x80..
            )
    };
    user.iter().all(plain) && memmem::find(user, b"%3").is_none()
}

fn is_reference(password: &[u8]) -> bool {
    memmem::find(password, MARK).is_some()
        || matches!(password, [b'$', b'{' | b'(', ..] | [b'{', b'{', ..])
        || password.iter().all(|byte| *byte == b'*')
}

/// Where the token begins, if no letter or digit stands before it. `%3D` and `\n` are no letters.
fn start(view: View<'_>, at: usize, back: usize) -> Result<usize, Not> {
    let from = at
        .checked_sub(back)
        .filter(|from| *from >= view.floor)
        .ok_or(Not::Here)?;
    let escaped = matches!(
        view.slice(from.saturating_sub(3), from),
        [b'%', hex, other] if hex.is_ascii_hexdigit() && other.is_ascii_hexdigit()
    ) || matches!(
        view.slice(from.saturating_sub(2), from),
        [b'\\', b'n' | b'r' | b't']
    );
    match is(view.before(from), ALNUM) && !escaped {
        true => Err(Not::Here),
        false => Ok(from),
    }
}

fn reaching(from: usize, class: u8) -> Secret {
    Secret {
        from,
        until: Until::Class(class),
    }
}
