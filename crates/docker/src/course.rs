//! The whole course of a run in a container, in order:
//!
//! ```text
//! connect ─▶ image ─▶ create (and sweep) ─▶ send files ─▶ attach ─▶ start ─▶ watch ─▶ bring files back ─▶ remove ─▶ record
//! ```
//!
//! Attached before it is started, so that no output is lost; written down before it is started, so that no run is. From before the container is made until it is
//! removed there is a process that removes it should this one be killed.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Instant, SystemTime};

use bollard::Docker;
use bollard::container::AttachContainerResults;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, InspectContainerOptions,
    RemoveContainerOptionsBuilder, StartContainerOptions,
};
use cofferdam_contract::ending::StopCause;
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::network::Network;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_contract::units::Cap;
use cofferdam_contract::usage::Usage;
use cofferdam_engine::backend::{
    self, Address, End, Ends, Farewell, Filling, OpenRun, Reported, WayOut, choose,
};
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::Streams;
use rustix::io::Errno;

use crate::container::{self, Stdin, Wish};
use crate::daemon::{Daemon, Flavour, Maker};
use crate::feed::Feed;
use crate::files::{self, Carried, Manifest};
use crate::hold::{self, Watched};
use crate::image::{self, Image};
use crate::owner::Owner;
use crate::ready::Cancel;
use crate::settings::{Endpoint, Init, Settings};
use crate::watch::Watching;
use crate::{daemon, last_word, network, sweep};

/// Runs a granted request to its end.
pub fn run(
    grant: Grant,
    streams: Streams<'_>,
    host: &Host,
    settings: &Settings,
) -> Result<RunRecord, EngineError> {
    container::check(grant.request())?;
    if streams.result.is_some() {
        return Err(daemon::unavailable(
            "a program in a container has no result channel".to_owned(),
            "let it print its result, or use --backend native".to_owned(),
        ));
    }
    let (open, ends) = backend::open(grant, streams)?;
    on_this_thread(carry_out(open, ends, host, settings))?
}

/// One run needs one thread.
pub(crate) fn on_this_thread<T>(work: impl Future<Output = T>) -> Result<T, EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| system("start a runtime")(Errno::from_io_error(&error)))?;
    let done = runtime.block_on(work);
    // A thread that waits for something that will not come must not hold us up.
    runtime.shutdown_background();
    Ok(done)
}

/// Why a run came to no end that can be told.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The daemon refused something before the program ran.
    Refused(EngineError),
    /// The daemon is gone.
    Lost(EngineError),
    /// The caller gave up before the program ran.
    Canceled,
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Refused(error)
    }
}

/// What a run in its container came to.
pub(crate) struct Finished {
    pub(crate) end: End,
    /// What went wrong after its end.
    pub(crate) trouble: Option<EngineError>,
}

async fn carry_out(
    mut open: OpenRun,
    ends: Ends<'_>,
    host: &Host,
    settings: &Settings,
) -> Result<RunRecord, EngineError> {
    let cancel = ends.cancel;
    let given_up = Cancel::new(cancel);
    let network = open.request().network.clone();
    let find = async {
        let daemon = daemon::connect(settings).await?;
        network::check(&daemon.client, settings, &network).await?;
        let image = image::find(&daemon.client, settings).await?;
        Ok::<_, EngineError>((daemon, image))
    };
    let (Daemon { client, flavour }, image) = tokio::select! {
        found = find => found?,
        () = given_up.wished() => return canceled(open, BTreeMap::new(), cancel),
    };
    let feed = Feed::new(ends.stdin).map_err(|errno| system("read the input")(Some(errno)))?;
    let name = container::name(&open.run_id().to_string());
    let farewell = farewell(settings, &name)?;
    let place = Place {
        client: &client,
        flavour,
        settings,
        image: &image,
        name: &name,
        network: &network,
    };
    let prepared = tokio::select! {
        prepared = place.prepare(&open, feed.is_some(), host) => prepared.map_err(Failed::Refused),
        () = given_up.wished() => Err(Failed::Canceled),
    };
    let finished = match prepared {
        Ok(prepared) => place.run(&mut open, prepared, feed, cancel).await,
        Err(failed) => Err(failed),
    };
    match finished {
        Ok(Finished { end, trouble }) => {
            remove(&client, &name, farewell).await;
            let record = open.close(end, cancel)?;
            trouble.map_or(Ok(record), Err)
        }
        Err(Failed::Refused(error)) => {
            remove(&client, &name, farewell).await;
            Err(error)
        }
        // What was being made may come to be yet. It tries again for a while, and nobody has to wait for that.
        Err(Failed::Canceled) => {
            farewell.alone();
            canceled(open, place.isolation(), cancel)
        }
        Err(Failed::Lost(error)) => {
            farewell.alone();
            Err(error)
        }
    }
}

/// Given up before the program could start.
fn canceled(
    mut open: OpenRun,
    isolation: BTreeMap<String, String>,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<RunRecord, EngineError> {
    let enforced_by = hold::enforcement(open.request(), &[], Watched::Yes)?;
    open.begin();
    let end = End {
        cause: Some(StopCause::Canceled),
        refused: None,
        report: Reported::Nothing,
        usage: Usage::default(),
        enforced_by,
        isolation,
        denials: Vec::new(),
        network: None,
        changes: None,
    };
    open.close(end, cancel)
}

/// From before the container exists: whoever kills us at any moment leaves somebody who removes it.
fn farewell(settings: &Settings, name: &str) -> Result<Farewell, EngineError> {
    let failed = |errno| system("prepare the removal of the container")(Some(errno));
    let address = match &settings.endpoint {
        Endpoint::Unix(path) => Address::unix(path).map_err(failed)?,
        Endpoint::Tcp(place) => {
            let address = Endpoint::resolve(place).ok_or_else(|| failed(Errno::HOSTUNREACH))?;
            Address::inet(address)
        }
    };
    let message = format!(
        "DELETE /containers/{name}?force=true&v=true HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    Farewell::start(address, message.into_bytes()).map_err(failed)
}

async fn remove(client: &Docker, name: &str, farewell: Farewell) {
    let how = RemoveContainerOptionsBuilder::default()
        .force(true)
        .v(true)
        .build();
    match client.remove_container(name, Some(how)).await {
        Ok(()) => farewell.unneeded(),
        Err(error) if daemon::status(&error) == Some(404) => farewell.unneeded(),
        Err(_) => farewell.alone(),
    }
}

/// Where a run takes place.
pub(crate) struct Place<'a> {
    pub(crate) client: &'a Docker,
    pub(crate) flavour: Flavour,
    pub(crate) settings: &'a Settings,
    pub(crate) image: &'a Image,
    name: &'a str,
    pub(crate) network: &'a Network,
}

impl Place<'_> {
    /// Everything up to the start.
    async fn prepare(
        &self,
        open: &OpenRun,
        has_input: bool,
        host: &Host,
    ) -> Result<Prepared, EngineError> {
        let stdin = match has_input {
            true => Stdin::Attached,
            false => Stdin::Absent,
        };
        let (id, mut warnings) = self.create(open, stdin, host).await?;
        // Some of its versions tell it in a way that cannot be read: then there is only their word that they hold what they took.
        if self.flavour.maker == Maker::Podman
            && let Ok(info) = self.client.info().await
        {
            warnings.extend(hold::confessed(&info));
        }
        let sent = self.send(open.request(), &id).await?;
        if *self.network != Network::Denied {
            network::send_usher(self.client, &id).await?;
        }
        let fillings = self.fillings(open.request(), &id).await?;
        let is_watched = match fillings {
            Some(_) => Watched::Yes,
            None => Watched::No,
        };
        let enforced_by = hold::enforcement(open.request(), &warnings, is_watched)?;
        let how = AttachContainerOptionsBuilder::default()
            .stream(true)
            .stdin(has_input)
            .stdout(true)
            .stderr(true)
            .build();
        let attached = self.client.attach_container(&id, Some(how)).await;
        Ok(Prepared {
            attached: attached.map_err(daemon::refused("attach to the container"))?,
            id,
            sent,
            fillings: fillings.unwrap_or_default(),
            enforced_by,
        })
    }

    async fn run(
        &self,
        open: &mut OpenRun,
        prepared: Prepared,
        mut feed: Option<Feed>,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Finished, Failed> {
        let Prepared {
            id,
            attached,
            sent,
            fillings,
            enforced_by,
        } = prepared;
        open.begin();
        let start = self
            .client
            .start_container(&id, None::<StartContainerOptions>);
        if let Err(error) = start.await {
            let failure = last_word::not_started(&error, open.request(), self.image)?;
            let report = Reported::NeverStarted(failure);
            return Ok(Finished {
                end: self.end(Usage::default(), enforced_by, report),
                trouble: None,
            });
        }
        let way_out = match network::open(self.client, &id, self.network).await {
            Ok(way_out) => way_out,
            Err(failure) => {
                let report = Reported::NeverStarted(failure);
                return Ok(Finished {
                    end: self.end(Usage::default(), enforced_by, report),
                    trouble: None,
                });
            }
        };
        // Making a container takes the daemon longer than many programs run; that is not their time.
        let started = Instant::now();
        let watching = Watching {
            client: self.client,
            id: &id,
            settings: self.settings,
            fillings,
            cancel,
            started,
        };
        let seen = watching.follow(open, attached, feed.as_mut()).await?;
        // What the program did not read is the caller's again.
        drop(feed);
        let (went, denials) = way_out.map(WayOut::close).unwrap_or_default();
        let mut finished = self
            .finish(open.request(), &id, seen, sent, enforced_by, cancel)
            .await?;
        finished.end.network = went;
        finished.end.denials = denials;
        Ok(finished)
    }

    async fn create(
        &self,
        open: &OpenRun,
        stdin: Stdin,
        host: &Host,
    ) -> Result<(String, Vec<String>), EngineError> {
        let owner = Owner::current();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let mut request = open.request().clone();
        backend::tell_program(&mut request);
        let wish = Wish {
            request: &request,
            image: self.image,
            settings: self.settings,
            flavour: self.flavour,
            run_id: open.run_id().to_string(),
            owner: &owner,
            now,
            stdin,
            cpus: cpus(open.request(), host, self.settings),
        };
        let options = CreateContainerOptionsBuilder::default()
            .name(self.name)
            .build();
        // What a crash left goes while the new one is made.
        let (made, ()) = tokio::join!(
            self.client
                .create_container(Some(options), container::body(&wish)),
            sweep::sweep_best_effort(self.client, &owner, now),
        );
        let made = made.map_err(daemon::refused("create the container"))?;
        Ok((made.id, made.warnings))
    }

    async fn send(
        &self,
        request: &Request,
        id: &str,
    ) -> Result<Vec<(Carried, Manifest)>, EngineError> {
        let client = daemon::patient(self.client, self.settings.pull_patience);
        let mut sent = Vec::new();
        for carried in Carried::all(request) {
            let manifest = files::send(&client, self.flavour, id, &carried).await?;
            sent.push((carried, manifest));
        }
        Ok(sent)
    }

    /// The volumes that the program can write to as directories of this machine, where all of them can be looked at.
    async fn fillings(
        &self,
        request: &Request,
        id: &str,
    ) -> Result<Option<Vec<Filling>>, EngineError> {
        let Cap::AtMost(limit) = request.limits.disk else {
            return Ok(None);
        };
        if !hold::writable(request) || !self.settings.endpoint.is_local() {
            return Ok(None);
        }
        let found = self
            .client
            .inspect_container(id, None::<InspectContainerOptions>)
            .await
            .map_err(daemon::refused("look at the container"))?;
        let volumes = found.mounts.unwrap_or_default();
        let writable = Carried::all(request)
            .into_iter()
            .filter(Carried::is_writable);
        let fillings = writable.map(|carried| {
            let volume = volumes
                .iter()
                .find(|volume| volume.destination.as_ref() == Some(&carried.inside))?;
            Filling::new(Path::new(volume.source.as_ref()?), limit)
        });
        Ok(fillings.collect())
    }

    pub(crate) fn end(&self, usage: Usage, enforced_by: Enforcement, report: Reported) -> End {
        End {
            cause: None,
            refused: None,
            report,
            usage,
            enforced_by,
            isolation: self.isolation(),
            denials: Vec::new(),
            network: None,
            changes: None,
        }
    }

    fn isolation(&self) -> BTreeMap<String, String> {
        let runtime = self.settings.runtime.as_deref();
        let init = match self.settings.init {
            Init::Daemons => "daemon's",
            Init::None => "none",
        };
        [
            ("container", self.name),
            ("daemon", &self.settings.endpoint.to_string()),
            ("image", &self.image.name),
            ("image_digest", self.image.known_by()),
            ("runtime", runtime.unwrap_or("daemon's default")),
            ("init", init),
            ("uid", "1000"),
            ("root", "read-only"),
            ("network", &self.network.to_string()),
            ("capabilities", "none"),
            ("no_new_privs", "set"),
            ("seccomp", "daemon's"),
        ]
        .map(|(part, by)| (part.to_owned(), by.to_owned()))
        .into()
    }
}

/// A container that only has to be started.
struct Prepared {
    id: String,
    attached: AttachContainerResults,
    sent: Vec<(Carried, Manifest)>,
    fillings: Vec<Filling>,
    enforced_by: Enforcement,
}

/// As many CPUs are shown as the share allows.
fn cpus(request: &Request, host: &Host, settings: &Settings) -> Option<Vec<usize>> {
    let share = request.limits.cpus.at_most()?;
    let count = usize::try_from(share.visible_cpus()).unwrap_or(usize::MAX);
    if !settings.endpoint.is_local() || count >= host.cpus.len() {
        return None;
    }
    let mut chosen = choose(count, host);
    chosen.sort_unstable();
    Some(chosen)
}

fn system(doing: &'static str) -> impl Fn(Option<Errno>) -> EngineError {
    move |errno| EngineError::System {
        doing,
        errno: errno.unwrap_or(Errno::IO),
    }
}
