//! What goes wrong, as a client reads it: a stable code, what it means, what exactly happened, what to do. The request id is added by the middleware, which alone knows it.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::problem::Problems;
use cofferdam_engine::error::EngineError;
use cofferdam_store::StoreError;
use schemars::JsonSchema;
use serde::Serialize;

/// Why a request was not answered with what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) description: &'static str,
    pub(crate) detail: String,
    pub(crate) solution: &'static str,
    /// In seconds.
    pub(crate) retry_after: Option<u64>,
}

/// An error as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// Stable; match on this.
    pub(crate) error_code: String,
    /// What the code means.
    pub(crate) description: String,
    /// What happened this time.
    pub(crate) error_detail: String,
    pub(crate) solution: String,
    pub(crate) request_id: String,
    /// The trace that the request belongs to, as in `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
}

/// Codes that only the daemon has. Those of the engine and the store keep their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoSuchRoute,
    MethodNotAllowed,
    UnsupportedMediaType,
    BodyTooLarge,
    RequestTimeout,
    TokenMissing,
    TokenInvalid,
    ScopeMissing,
    ForeignOrigin,
    QueueFull,
    OutboxFull,
    CallbackRefused,
    QuotaExceeded,
    Stopping,
    RunEnded,
    RunGoesOn,
    DeadlinePassed,
    IdempotencyConflict,
    LanguageUnavailable,
    AnswersFull,
    ExportTooLarge,
}

impl Refusal {
    pub(crate) const ALL: [Self; 21] = [
        Self::NoSuchRoute,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::BodyTooLarge,
        Self::RequestTimeout,
        Self::TokenMissing,
        Self::TokenInvalid,
        Self::ScopeMissing,
        Self::ForeignOrigin,
        Self::QueueFull,
        Self::OutboxFull,
        Self::CallbackRefused,
        Self::QuotaExceeded,
        Self::Stopping,
        Self::RunEnded,
        Self::RunGoesOn,
        Self::DeadlinePassed,
        Self::IdempotencyConflict,
        Self::LanguageUnavailable,
        Self::AnswersFull,
        Self::ExportTooLarge,
    ];

    const fn entry(self) -> (StatusCode, &'static str, &'static str, &'static str) {
        match self {
            Self::NoSuchRoute => (
                StatusCode::NOT_FOUND,
                "http.not_found",
                "There is nothing at this path.",
                "See /docs or /openapi.json for what there is.",
            ),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "http.method_not_allowed",
                "This path does not take this method.",
                "Use one of the methods in the Allow header.",
            ),
            Self::UnsupportedMediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "http.unsupported_media_type",
                "The body is not in a form that is read here.",
                "Send JSON with `Content-Type: application/json`, or to /v1/runs also `multipart/form-data`.",
            ),
            Self::BodyTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "http.body_too_large",
                "The body is larger than this daemon takes.",
                "Send less, or start the daemon with a larger --max-body.",
            ),
            Self::RequestTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "http.timeout",
                "The request took too long to arrive or to answer.",
                "Send it again; send bodies without long pauses.",
            ),
            Self::TokenMissing => (
                StatusCode::UNAUTHORIZED,
                "auth.missing",
                "This daemon wants to know who asks.",
                "Send `Authorization: Bearer TOKEN`.",
            ),
            Self::TokenInvalid => (
                StatusCode::UNAUTHORIZED,
                "auth.invalid",
                "This token is not known here, or was revoked.",
                "Use a token from `cofferdam token create`.",
            ),
            Self::ScopeMissing => (
                StatusCode::FORBIDDEN,
                "auth.scope",
                "This token may not do that.",
                "Use a token with the scope that the detail names.",
            ),
            Self::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "auth.origin",
                "Without tokens, only programs on this machine are served, and no web pages from elsewhere.",
                "Use 127.0.0.1 or localhost in the address, or create a token.",
            ),
            Self::QueueFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "queue.full",
                "As much work is waiting as may wait.",
                "Try again after the time in Retry-After.",
            ),
            Self::OutboxFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "outbox.full",
                "As many reports wait to be delivered as may wait, and none may be lost.",
                "Try again after the time in Retry-After; see that whoever is reported to can be reached.",
            ),
            Self::CallbackRefused => (
                StatusCode::BAD_REQUEST,
                "callback.refused",
                "This daemon does not call this address.",
                "Name an address that its operator allows (`--callback-allow`), or leave callback_url out.",
            ),
            Self::QuotaExceeded => (
                StatusCode::TOO_MANY_REQUESTS,
                "quota.exceeded",
                "This token has as much work waiting as it may have.",
                "Wait for some of it to end, or cancel some.",
            ),
            Self::Stopping => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server.stopping",
                "The daemon is ending and takes no new work.",
                "Try again after the time in Retry-After.",
            ),
            Self::RunEnded => (
                StatusCode::CONFLICT,
                "run.ended",
                "The run has ended already.",
                "There is nothing left to cancel; read its result.",
            ),
            Self::RunGoesOn => (
                StatusCode::CONFLICT,
                "run.goes_on",
                "The run has not ended yet.",
                "Wait for its end; its events say when.",
            ),
            Self::DeadlinePassed => (
                StatusCode::GATEWAY_TIMEOUT,
                "run.deadline_passed",
                "The run's deadline passed before its turn came.",
                "Allow more time with `deadline_ms`, or try when less is waiting.",
            ),
            Self::IdempotencyConflict => (
                StatusCode::CONFLICT,
                "idempotency.conflict",
                "This Idempotency-Key was used with another body.",
                "Use a new key for new work.",
            ),
            Self::LanguageUnavailable => (
                StatusCode::NOT_IMPLEMENTED,
                "language.unavailable",
                "This daemon cannot run source code in this language.",
                "See /v1/languages for what it can; a command runs always.",
            ),
            Self::AnswersFull => (
                StatusCode::SERVICE_UNAVAILABLE,
                "answers.full",
                "Answers that wait to be read take as much memory as they may.",
                "Read the answers that were asked for, then ask again; the run itself has not suffered.",
            ),
            Self::ExportTooLarge => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "export.too_large",
                "What the run left is more than one bundle over HTTP holds.",
                "Fetch its artifacts one by one, or use `cofferdam export` on the daemon's machine.",
            ),
        }
    }

    pub(crate) const fn code(self) -> &'static str {
        self.entry().1
    }

    pub(crate) fn because(self, detail: impl Into<String>) -> Fault {
        let (status, code, description, solution) = self.entry();
        let retry_after = match self {
            Self::QueueFull | Self::Stopping | Self::AnswersFull => Some(1),
            Self::OutboxFull => Some(5),
            _ => None,
        };
        Fault {
            status,
            code,
            description,
            detail: detail.into(),
            solution,
            retry_after,
        }
    }
}

impl Fault {
    /// A failure that the engine or the store has a code for.
    pub(crate) fn coded(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            status: status_of(code),
            code: code.as_str(),
            description: code.meaning(),
            detail: detail.into(),
            solution: code.what_to_do(),
            retry_after: None,
        }
    }

    pub(crate) fn invalid(field: &str, value: impl std::fmt::Display, fix: &str) -> Self {
        let problem = cofferdam_contract::problem::Problem::new(field, value, fix);
        Self::coded(ErrorCode::InputInvalid, problem.to_string())
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::coded(ErrorCode::Internal, detail)
    }

    pub(crate) fn body(&self, request_id: &str) -> ErrorBody {
        ErrorBody {
            error_code: self.code.to_owned(),
            description: self.description.to_owned(),
            error_detail: self.detail.clone(),
            solution: self.solution.to_owned(),
            request_id: request_id.to_owned(),
            trace_id: crate::trace::current_id(),
        }
    }
}

pub(crate) fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::InputInvalid
        | ErrorCode::InputUnreadable
        | ErrorCode::InputMalformedJson
        | ErrorCode::ConfigInvalid => StatusCode::BAD_REQUEST,
        ErrorCode::PayloadInvalid
        | ErrorCode::PayloadDigestMismatch
        | ErrorCode::PayloadExpired
        | ErrorCode::EnvelopeInvalid
        | ErrorCode::BackendUnsupportedTask
        | ErrorCode::LimitUnenforceable
        | ErrorCode::ProgramNotFound
        | ErrorCode::ProgramNotExecutable
        | ErrorCode::BundleRefused => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::PolicyRefused => StatusCode::FORBIDDEN,
        ErrorCode::HistoryNotFound => StatusCode::NOT_FOUND,
        ErrorCode::BackendUnavailable | ErrorCode::HistoryUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorCode::ServerUnreachable | ErrorCode::ServerRefused => StatusCode::BAD_GATEWAY,
        ErrorCode::SandboxSetupFailed
        | ErrorCode::OutputWriteFailed
        | ErrorCode::HistoryDamaged
        | ErrorCode::HistoryNewerFormat
        | ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Problems> for Fault {
    fn from(problems: Problems) -> Self {
        Self::coded(ErrorCode::InputInvalid, problems.to_string())
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        Self::coded(error.code(), error.to_string())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        // Paths of the daemon's own files are for its log; what was asked for is for the client.
        match &error {
            StoreError::Io { .. }
            | StoreError::Database { .. }
            | StoreError::Damaged { .. }
            | StoreError::NewerFormat { .. }
            | StoreError::OutboxFull { .. } => {
                tracing::error!(error = %error, "the history cannot be used");
                Self::coded(error.code(), "the daemon's log says more")
            }
            StoreError::NoSuchRun { .. }
            | StoreError::Ambiguous { .. }
            | StoreError::NoSuchArtifact { .. }
            | StoreError::Invalid { .. }
            | StoreError::BundleRefused { .. } => Self::coded(error.code(), error.to_string()),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"cofferdam\"");
            headers.insert(header::WWW_AUTHENTICATE, how);
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        let ours: std::collections::BTreeSet<_> = Refusal::ALL.map(Refusal::code).into();
        let all: std::collections::BTreeSet<_> = ErrorCode::ALL
            .map(ErrorCode::as_str)
            .into_iter()
            .chain(ours.clone())
            .collect();
        assert_eq!(ours.len(), Refusal::ALL.len());
        assert_eq!(all.len(), ours.len() + ErrorCode::ALL.len());
    }
}
