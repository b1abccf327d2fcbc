//! The way to a fleet: the connection with its credentials, and the streams and buckets, made where they are missing and refused where they are somebody else's.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, Stream};
use async_nats::jetstream::{self, kv, object_store};
use async_nats::{ConnectErrorKind, ConnectOptions, RequestErrorKind, ServerAddr};

use crate::error::FleetError;
use crate::model::Settings;
use crate::names;
use crate::store;

/// Where a fleet is and how to get in.
#[derive(Debug, Clone, Default)]
pub struct Address {
    pub url: String,
    /// A file of credentials as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// Certificates of authorities to believe besides those of the system.
    pub ca: Option<PathBuf>,
    /// A certificate of our own, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// What a key signs with, wherever it is kept.
pub trait Sign: Send + Sync {
    /// The public half as base64.
    fn public_key(&self) -> String;
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

/// A fleet that answers.
#[derive(Clone)]
pub struct Fleet {
    pub(crate) client: async_nats::Client,
    pub(crate) context: jetstream::Context,
    pub(crate) work: Stream,
    pub(crate) results: Stream,
    pub(crate) dead: Stream,
    pub(crate) events: Stream,
    pub(crate) jobs: kv::Store,
    pub(crate) open: kv::Store,
    pub(crate) claims: kv::Store,
    pub(crate) workers: kv::Store,
    pub(crate) ledger: kv::Store,
    pub(crate) objects: object_store::ObjectStore,
    pub(crate) settings: Settings,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").finish_non_exhaustive()
    }
}

const CONNECTING: Duration = Duration::from_secs(5);
const ANSWERING: Duration = Duration::from_secs(5);
/// When a stream, a bucket or a queue does not come to be.
const FURNISHING: &str = "cannot find what the fleet is made of";
const PINGING: Duration = Duration::from_secs(10);
/// Within this a message that is sent twice is one.
const DUPLICATES: Duration = Duration::from_secs(120);

impl Fleet {
    /// Connects, and makes what is missing. `wanted` are the settings from now on, all of them.
    pub async fn connect(address: &Address, wanted: Option<Settings>) -> Result<Self, FleetError> {
        let (client, context) = Self::reached(address).await?;
        Self::furnished(client, context, wanted).await
    }

    /// The same, and has something else hold for it from now on. What `change` leaves alone stays as it was.
    pub async fn changed(
        address: &Address,
        change: impl FnOnce(&mut Settings),
    ) -> Result<Self, FleetError> {
        let (client, context) = Self::reached(address).await?;
        let about = bucket(&context, names::SETTINGS, Duration::ZERO).await?;
        let mut wanted = settings(&about, None).await?;
        change(&mut wanted);
        Self::furnished(client, context, Some(wanted)).await
    }

    async fn reached(
        address: &Address,
    ) -> Result<(async_nats::Client, jetstream::Context), FleetError> {
        let options = options(address).await?;
        let client = store::within("cannot connect", options.connect(&address.url)).await?;
        let client = client.map_err(|error| refusal(address, &error))?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWERING);
        has_jetstream(&client, &address.url).await?;
        Ok((client, context))
    }

    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    async fn furnished(
        client: async_nats::Client,
        context: jetstream::Context,
        wanted: Option<Settings>,
    ) -> Result<Self, FleetError> {
        let about = bucket(&context, names::SETTINGS, Duration::ZERO).await?;
        let settings = settings(&about, wanted).await?;
        let kept = Duration::from_secs(settings.keep_results_hours.saturating_mul(3600));
        let work = Config {
            name: names::WORK_STREAM.to_owned(),
            subjects: vec!["cofferdam.work.>".to_owned()],
            retention: RetentionPolicy::WorkQueue,
            duplicate_window: DUPLICATES,
            ..Config::default()
        };
        let results = Config {
            name: names::RESULT_STREAM.to_owned(),
            subjects: vec!["cofferdam.result.>".to_owned()],
            // One answer for a slot and a worker: what comes later is refused by the server.
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            max_age: kept,
            duplicate_window: DUPLICATES,
            ..Config::default()
        };
        let plain = |name: &str, subject: &str| Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            max_age: kept,
            duplicate_window: DUPLICATES.min(kept),
            ..Config::default()
        };
        Ok(Self {
            work: stream(&context, work).await?,
            results: stream(&context, results).await?,
            dead: stream(&context, plain(names::DEAD_STREAM, "cofferdam.dead.>")).await?,
            events: stream(&context, plain(names::EVENT_STREAM, "cofferdam.event.>")).await?,
            jobs: bucket(&context, names::JOBS, kept).await?,
            open: bucket(&context, names::OPEN, Duration::ZERO).await?,
            claims: bucket(&context, names::CLAIMS, kept).await?,
            workers: bucket(&context, names::WORKERS, Duration::ZERO).await?,
            ledger: bucket(&context, names::LEDGER, Duration::ZERO).await?,
            objects: objects(&context, kept).await?,
            client,
            context,
            settings,
        })
    }
}

/// Asked by hand: the client's own reader of this answer knows newer servers only.
async fn has_jetstream(client: &async_nats::Client, url: &str) -> Result<(), FleetError> {
    let none = |why: String| FleetError::NoJetStream {
        url: shown(url),
        why,
    };
    let answer = client.request("$JS.API.INFO", "".into());
    let answer = store::within("cannot ask for JetStream", answer).await?;
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => none(error.to_string()),
        RequestErrorKind::TimedOut
        | RequestErrorKind::InvalidSubject
        | RequestErrorKind::MaxPayloadExceeded
        | RequestErrorKind::Other => FleetError::talk("cannot ask for JetStream")(error),
    })?;
    let said: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    match said.get("error") {
        Some(error) => Err(none(error["description"].to_string())),
        None => Ok(()),
    }
}

async fn options(address: &Address) -> Result<ConnectOptions, FleetError> {
    let mut options = ConnectOptions::new()
        .name("cofferdam")
        .connection_timeout(CONNECTING)
        .request_timeout(Some(ANSWERING))
        // A network that went away is noticed by this, where nothing else is said.
        .ping_interval(PINGING)
        .reconnect_delay_callback(|attempts| {
            let steps = u64::try_from(attempts).unwrap_or(u64::MAX).min(20);
            Duration::from_millis(steps.saturating_mul(100))
        });
    options = known_as(options, &address.url);
    if let Some(file) = &address.credentials {
        options = options.credentials_file(file).await.map_err(|error| {
            let why = format!("cannot read `{}`: {error}", file.display());
            FleetError::BadOption {
                option: "--nats-creds",
                why,
            }
        })?;
    }
    if let Some(file) = &address.nkey {
        let bad = |why: String| FleetError::BadOption {
            option: "--nats-nkey",
            why,
        };
        let seed = std::fs::read_to_string(file);
        let seed =
            seed.map_err(|error| bad(format!("cannot read `{}`: {error}", file.display())))?;
        let seed = seed.trim().to_owned();
        // A seed that is none is told here, and not shown.
        if !seed.starts_with("SU") || seed.len() < 50 {
            return Err(bad(format!(
                "`{}` holds no seed of a user; it begins with SU",
                file.display()
            )));
        }
        options = options.nkey(seed);
    }
    // Read here, so that a file that is missing is told by its name.
    for (option, file) in [("--nats-ca", address.ca.as_ref())].into_iter().chain(
        address
            .client
            .iter()
            .flat_map(|(own, key)| [("--nats-cert", Some(own)), ("--nats-key", Some(key))]),
    ) {
        let Some(file) = file else { continue };
        std::fs::read(file).map_err(|error| FleetError::BadOption {
            option,
            why: format!("cannot read `{}`: {error}", file.display()),
        })?;
    }
    if let Some(file) = &address.ca {
        options = options
            .add_root_certificates(file.clone())
            .require_tls(true);
    }
    if let Some((certificate, key)) = &address.client {
        // Whoever shows a certificate means to be on a secure line: a server in between cannot talk us out of it.
        options = options
            .add_client_certificate(certificate.clone(), key.clone())
            .require_tls(true);
    }
    Ok(options)
}

/// Who we are, where the address says it: a user with a password, or a token alone. The client itself does not look there.
fn known_as(options: ConnectOptions, url: &str) -> ConnectOptions {
    let Ok(server) = url.parse::<ServerAddr>() else {
        return options;
    };
    match (server.username(), server.password()) {
        (Some(user), Some(password)) => options.user_and_password(decoded(user), decoded(password)),
        (Some(token), None) => options.token(decoded(token)),
        (None, _) => options,
    }
}

/// `%40` is `@`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server that is there and does not let us in is another trouble than one that is not there.
fn refusal(address: &Address, error: &async_nats::ConnectError) -> FleetError {
    use std::error::Error as _;
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        let text = deeper.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = deeper.source();
    }
    let url = shown(&address.url);
    let lower = why.to_lowercase();
    let is_secure = address.ca.is_some() || address.client.is_some();
    // Of a certificate that the server does not take, the alert may be lost with the connection. One that knows nothing of TLS answers in plain text.
    let is_cut = is_secure
        && ["reset", "eof", "broken pipe", "closed", "corrupt message"]
            .iter()
            .any(|word| lower.contains(word));
    let is_tls = ["certificate", "tls", "alert"]
        .iter()
        .any(|word| lower.contains(word));
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            FleetError::NotLetIn { url, why }
        }
        ConnectErrorKind::Tls => FleetError::NoTls { url, why },
        _ if is_tls || is_cut => FleetError::NoTls { url, why },
        _ => FleetError::Unreachable { url, why },
    }
}

/// An address may hold a password.
fn shown(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => url.to_owned(),
    }
}

async fn stream(context: &jetstream::Context, wanted: Config) -> Result<Stream, FleetError> {
    let (name, retention) = (wanted.name.clone(), wanted.retention);
    let (subjects, once) = (wanted.subjects.clone(), wanted.discard_new_per_subject);
    let wrong = |why: String| FleetError::WrongStream {
        name: name.clone(),
        why,
    };
    let stream = store::within(FURNISHING, context.get_or_create_stream(wanted)).await?;
    let stream = stream.map_err(|error| wrong(error.to_string()))?;
    let has = &stream.cached_info().config;
    if has.retention != retention {
        return Err(wrong(format!("it has the retention {:?}", has.retention)));
    }
    if has.subjects != subjects {
        return Err(wrong(format!(
            "it has the subjects {}",
            has.subjects.join(", ")
        )));
    }
    if has.discard_new_per_subject != once {
        return Err(wrong(
            "it takes more than one message for a subject".to_owned(),
        ));
    }
    Ok(stream)
}

async fn bucket(
    context: &jetstream::Context,
    name: &'static str,
    max_age: Duration,
) -> Result<kv::Store, FleetError> {
    if let Ok(found) = store::within(FURNISHING, context.get_key_value(name)).await? {
        return Ok(found);
    }
    // As a bucket is by its convention. The client's own way asks the account first, in a form that older servers do not answer in.
    let config = Config {
        name: format!("KV_{name}"),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: 1,
        max_age,
        allow_rollup: true,
        allow_direct: true,
        deny_delete: true,
        discard: DiscardPolicy::New,
        num_replicas: 1,
        ..Config::default()
    };
    let wrong = |why: String| FleetError::WrongStream {
        name: format!("KV_{name}"),
        why,
    };
    let made = store::within(FURNISHING, context.get_or_create_stream(config)).await?;
    made.map_err(|error| wrong(error.to_string()))?;
    let found = store::within(FURNISHING, context.get_key_value(name)).await?;
    found.map_err(|error| wrong(error.to_string()))
}

async fn objects(
    context: &jetstream::Context,
    max_age: Duration,
) -> Result<object_store::ObjectStore, FleetError> {
    if let Ok(found) = store::within(FURNISHING, context.get_object_store(names::OBJECTS)).await? {
        return Ok(found);
    }
    let config = object_store::Config {
        bucket: names::OBJECTS.to_owned(),
        max_age,
        ..object_store::Config::default()
    };
    match store::within(FURNISHING, context.create_object_store(config)).await? {
        Ok(made) => Ok(made),
        Err(error) => {
            let found = store::within(FURNISHING, context.get_object_store(names::OBJECTS)).await?;
            found.map_err(|_| FleetError::WrongStream {
                name: format!("OBJ_{}", names::OBJECTS),
                why: error.to_string(),
            })
        }
    }
}

async fn settings(about: &kv::Store, wanted: Option<Settings>) -> Result<Settings, FleetError> {
    if let Some(wanted) = wanted {
        store::put(about, names::SETTINGS_KEY, &wanted).await?;
        return Ok(wanted);
    }
    if let Some(found) = store::get(about, names::SETTINGS_KEY).await? {
        return Ok(found.value);
    }
    let usual = Settings::default();
    store::create(about, names::SETTINGS_KEY, &usual).await?;
    let found = store::get(about, names::SETTINGS_KEY).await?;
    Ok(found.map_or(usual, |found| found.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_not_repeated() {
        assert_eq!(shown("nats://me:secret@host:4222"), "…@host:4222");
        assert_eq!(shown("nats://host:4222"), "nats://host:4222");
    }

    #[test]
    fn what_an_address_cannot_hold_is_written_with_percent_signs() {
        assert_eq!(decoded("a%40b%3Ac"), "a@b:c");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }
}
