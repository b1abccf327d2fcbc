//! One question by JSON-RPC, one answer: to a node over HTTP, both bounded in bytes and in time, or to the chain that lives here. Decides nothing about asking again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy_primitives::hex;
use cofferdam_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ureq::Agent;

use crate::contract::Revert;
use crate::embedded::Embedded;
use crate::error::ChainError;

const CONNECTING: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(30);
const LARGEST_ANSWER: u64 = 8 << 20;
/// What many nodes answer with when a call was turned down by the contract.
const EXECUTION_REVERTED: i64 = 3;

/// Who is asked.
#[derive(Debug)]
pub(crate) enum Rpc {
    Http(Http),
    /// In this process.
    Here(Arc<Embedded>),
}

impl Rpc {
    /// The node, without what may be secret in its address.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Http(http) => shown(&http.url),
            Self::Here(chain) => chain.to_string(),
        }
    }

    pub(crate) fn ask(&self, method: &'static str, params: Value) -> Result<Value, ChainError> {
        match self {
            Self::Http(http) => http.ask(method, params),
            Self::Here(chain) => chain
                .ask(method, &params)
                .map_err(|trouble| refused(method, trouble)),
        }
    }
}

pub(crate) struct Http {
    url: String,
    agent: Agent,
    next: AtomicU64,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Http").field(&shown(&self.url)).finish()
    }
}

#[derive(Deserialize)]
struct Answer {
    result: Option<Value>,
    error: Option<Trouble>,
}

/// Why a question has no answer, as JSON-RPC says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    data: Value,
}

impl Trouble {
    pub(crate) const MALFORMED: i64 = -32_700;
    pub(crate) const NO_QUESTION: i64 = -32_600;
    pub(crate) const UNKNOWN_METHOD: i64 = -32_601;
    pub(crate) const BAD_PARAMETER: i64 = -32_602;
    const INTERNAL: i64 = -32_603;
    const REFUSED: i64 = -32_000;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: Value::Null,
        }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Self::REFUSED, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    /// The contract has turned it down, and said so.
    pub(crate) fn reverted(said: &[u8]) -> Self {
        Self {
            code: EXECUTION_REVERTED,
            message: format!("execution reverted: {}", Revert::read(said)),
            data: Value::String(hex::encode_prefixed(said)),
        }
    }

    pub(crate) const fn is_refusal(&self) -> bool {
        self.code == Self::REFUSED
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

impl Http {
    pub(crate) fn new(url: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECTING))
            .timeout_global(Some(WHOLE))
            .build();
        Self {
            url: url.to_owned(),
            agent: config.into(),
            next: AtomicU64::new(1),
        }
    }

    fn ask(&self, method: &'static str, params: Value) -> Result<Value, ChainError> {
        let down = |why: String| ChainError::Down {
            url: shown(&self.url),
            why,
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let sent = self
            .agent
            .post(&self.url)
            .header("Content-Type", "application/json")
            .send(question.to_string());
        let mut response = sent.map_err(|error| down(error.to_string()))?;
        let body = response.body_mut().with_config().limit(LARGEST_ANSWER);
        let text = body.read_to_string();
        let text = text.map_err(|error| down(error.to_string()))?;
        let status = response.status();
        let answer: Answer = match serde_json::from_str(&text) {
            Ok(answer) => answer,
            // A gateway that says why there is no answer: it may have one later.
            Err(_) if !status.is_success() => return Err(down(format!("HTTP {status}"))),
            Err(error) => {
                return Err(ChainError::Malformed {
                    what: format!("the node's answer to {method}"),
                    why: error.to_string(),
                });
            }
        };
        match answer {
            Answer {
                error: Some(trouble),
                ..
            } => Err(refused(method, trouble)),
            Answer { result, .. } => Ok(result.unwrap_or(Value::Null)),
        }
    }
}

fn refused(method: &'static str, trouble: Trouble) -> ChainError {
    // Some nodes put what the contract said into an object.
    let data = trouble.data.as_str().or(trouble.data["data"].as_str());
    let data = data.and_then(|data| hex::decode(data).ok());
    let is_revert = trouble.code == EXECUTION_REVERTED || trouble.message.contains("revert");
    if is_revert {
        return ChainError::Reverted {
            revert: Revert::read(&data.unwrap_or_default()),
        };
    }
    ChainError::Refused {
        method,
        code: trouble.code,
        message: trouble.message,
    }
}

/// Keys of services stand in paths and before hosts.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::contract::RevertKind;

    /// Answers each connection with one of these, in order.
    fn server(answers: Vec<(u16, String)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://user:pw@{}/secret", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut seen = Vec::new();
                let mut chunk = [0; 4096];
                while !seen.ends_with(b"}") {
                    let got = stream.read(&mut chunk).unwrap();
                    seen.extend_from_slice(&chunk[..got]);
                }
                let answer = format!(
                    "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        url
    }

    #[test]
    fn an_answer_a_refusal_and_a_node_that_is_away_are_told_apart() {
        let url = server(vec![
            (200, "{\"id\":1,\"result\":\"0x1\"}".into()),
            (200, "{\"id\":2,\"error\":{\"code\":-32000,\"message\":\"nonce too low\"}}".into()),
            (200, "{\"id\":3,\"error\":{\"code\":3,\"message\":\"execution reverted\",\"data\":\"0x\"}}".into()),
            (503, "no node today".into()),
            (200, "not JSON".into()),
        ]);
        let rpc = Http::new(&url);
        assert_eq!(rpc.ask("a", json!([])).unwrap(), "0x1");
        let refused = rpc.ask("b", json!([])).unwrap_err();
        assert!(
            matches!(&refused, ChainError::Refused { code: -32000, .. }),
            "{refused}"
        );
        let reverted = rpc.ask("c", json!([])).unwrap_err();
        assert!(
            matches!(&reverted, ChainError::Reverted { revert } if revert.kind == RevertKind::Never),
            "{reverted}"
        );
        let away = rpc.ask("d", json!([])).unwrap_err();
        assert!(away.is_down() && away.to_string().contains("503"), "{away}");
        assert!(!away.to_string().contains("secret") && !away.to_string().contains("pw"));
        assert!(matches!(
            rpc.ask("e", json!([])),
            Err(ChainError::Malformed { .. })
        ));
        assert!(rpc.ask("f", json!([])).unwrap_err().is_down());
    }
}
