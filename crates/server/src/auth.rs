//! Who asks, and what they may do. Without tokens only this machine is served; with tokens, nobody without one. What cannot be read refuses everybody.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, header};

use crate::fault::{Fault, Refusal};
use crate::tokens::{self, Scope, Token, TokenError, TokenFile, Version};

/// Whoever sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The id of a token, or `local`.
    pub(crate) id: String,
    scopes: Vec<Scope>,
    pub(crate) max_running: Option<usize>,
    pub(crate) max_queued: Option<usize>,
}

/// Decides who a request comes from.
#[derive(Debug)]
pub(crate) struct Gate {
    file: TokenFile,
    exposure: Exposure,
    known: Mutex<Known>,
}

/// Who can reach the daemon at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    Loopback,
    Network,
}

#[derive(Debug, Default)]
struct Known {
    version: Option<Version>,
    tokens: Arc<[Token]>,
    /// Once there were tokens, their absence is a reason to refuse, not to let everybody in.
    wanted: bool,
}

impl Caller {
    pub(crate) fn local() -> Self {
        Self {
            id: "local".to_owned(),
            scopes: vec![Scope::Admin],
            max_running: None,
            max_queued: None,
        }
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    pub(crate) fn must(&self, scope: Scope) -> Result<(), Fault> {
        if self.may(scope) {
            Ok(())
        } else {
            Err(Refusal::ScopeMissing.because(format!("the scope `{}` is needed", scope.as_str())))
        }
    }
}

impl From<&Token> for Caller {
    fn from(token: &Token) -> Self {
        Self {
            id: token.id.clone(),
            scopes: token.scopes.clone(),
            max_running: token.max_running,
            max_queued: token.max_queued,
        }
    }
}

impl Gate {
    pub(crate) fn new(file: TokenFile, exposure: Exposure) -> Result<Self, TokenError> {
        let version = file.version();
        let tokens: Arc<[Token]> = file.list()?.into();
        // A file without tokens is one whose last token was revoked, and not a daemon that never had any.
        let wanted = version.is_some() || exposure == Exposure::Network;
        Ok(Self {
            file,
            exposure,
            known: Mutex::new(Known {
                version,
                tokens,
                wanted,
            }),
        })
    }

    pub(crate) fn has_tokens(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        !known.tokens.is_empty()
    }

    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Caller, Fault> {
        let (tokens, wanted) = self.tokens()?;
        if !wanted && self.exposure == Exposure::Loopback {
            check_local(headers)?;
            return Ok(Caller::local());
        }
        let given = headers
            .get(header::AUTHORIZATION)
            .ok_or_else(|| Refusal::TokenMissing.because("there is no Authorization header"))?;
        let secret = given
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, secret)| secret.trim())
            .ok_or_else(|| {
                Refusal::TokenInvalid.because("the Authorization header is not `Bearer TOKEN`")
            })?;
        tokens::find(&tokens, secret)
            .map(Caller::from)
            .ok_or_else(|| Refusal::TokenInvalid.because("no token has this secret"))
    }

    /// Read again when the file has changed, so that a revoked token is refused at once.
    fn tokens(&self) -> Result<(Arc<[Token]>, bool), Fault> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.file.version();
        if version != known.version {
            let tokens = self.file.list().map_err(|error| {
                tracing::error!(%error, "the tokens cannot be read; everybody is refused");
                Fault::internal("the tokens cannot be read; the daemon's log says why")
            })?;
            known.tokens = tokens.into();
            known.wanted |= version.is_some();
            known.version = version;
        }
        Ok((Arc::clone(&known.tokens), known.wanted))
    }
}

/// A web page in a browser on this machine reaches loopback too. It cannot choose what the browser says in Host and Origin.
fn check_local(headers: &HeaderMap) -> Result<(), Fault> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    if let Some(host) = text(header::HOST)
        && !is_local_name(host)
    {
        return Err(Refusal::ForeignOrigin.because(format!("Host: {host}")));
    }
    // Whoever comes through a proxy is not on this machine, whatever the proxy says in Host.
    for name in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
        if headers.contains_key(name) {
            return Err(Refusal::ForeignOrigin.because(format!("{name}: a proxy needs tokens")));
        }
    }
    if let Some(origin) = text(header::ORIGIN) {
        let host = origin.split_once("://").map(|(_, host)| host);
        if !host.is_some_and(is_local_name) {
            return Err(Refusal::ForeignOrigin.because(format!("Origin: {origin}")));
        }
    }
    Ok(())
}

fn is_local_name(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for local in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "127.3.2.1",
            "[::1]:8080",
        ] {
            assert!(is_local_name(local), "{local}");
        }
        for foreign in [
            "",
            "example.com",
            "localhost.evil.com:80",
            "10.0.0.1",
            "[::2]",
            "127.0.0.1.nip.io",
        ] {
            assert!(!is_local_name(foreign), "{foreign}");
        }
    }
}
