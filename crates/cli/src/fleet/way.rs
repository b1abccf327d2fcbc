//! How the verbs about a fleet get to it.

use std::path::Path;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::Deed;
use cofferdam_fleet::coordinator::Trust;
use cofferdam_fleet::model::Settings;
use cofferdam_fleet::{Address, Fleet};
use cofferdam_store::keyring;
use tokio::runtime::{Builder, Runtime};

use crate::arguments::Places;
use crate::arguments::fleet::NatsArgs;
use crate::failure::{Failure, visible, without_secrets};
use crate::policy;
use crate::terminal::waiting::Waiting;

pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failure::io(ErrorCode::Internal, "cannot start", &error))
}

pub(super) async fn connected(
    url: &str,
    way: &NatsArgs,
    places: &Places,
) -> Result<Fleet, Failure> {
    policy::refuse(policy::in_force(places)?, [Deed::Daemon(url)])?;
    let _waiting = Waiting::on("connecting to the fleet");
    Ok(Fleet::connect(&address(url, way), None).await?)
}

/// The same, and changes what holds for it.
pub(super) async fn changed(
    url: &str,
    way: &NatsArgs,
    places: &Places,
    change: impl FnOnce(&mut Settings),
) -> Result<Fleet, Failure> {
    policy::refuse(policy::in_force(places)?, [Deed::Daemon(url)])?;
    let _waiting = Waiting::on("connecting to the fleet");
    Ok(Fleet::changed(&address(url, way), change).await?)
}

pub(crate) fn address(url: &str, way: &NatsArgs) -> Address {
    Address {
        url: url.to_owned(),
        credentials: way.nats_creds.clone(),
        nkey: way.nats_nkey.clone(),
        ca: way.nats_ca.clone(),
        client: way.nats_cert.clone().zip(way.nats_key.clone()),
    }
}

pub(crate) fn trust(file: Option<&Path>) -> Result<Trust, Failure> {
    let Some(file) = file else {
        return Ok(Trust::FirstUse);
    };
    let about = Failure::about_file(file, ErrorCode::InputUnreadable);
    Ok(Trust::Listed(keyring::read_trusted(file).map_err(about)?))
}

/// A line for whoever looks after a process that runs for long.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    let line = format!("cofferdam: {}\n", visible(&without_secrets(line)));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
