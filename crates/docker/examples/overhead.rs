//! What a run costs over the API's own minimum: create, attach, start, wait, remove. Both take turns, so that noise hits both alike. The promise is 15 ms.
//!
//! ```text
//! DOCKER_HOST=unix:///var/run/docker.sock cargo run --release -p cofferdam-docker --example overhead IMAGE [ROUNDS]
//! ```
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends with its reason"
)]

use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig};
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder,
    StartContainerOptions, WaitContainerOptions,
};
use cofferdam_contract::request::{BackendName, Grant, Request};
use cofferdam_docker::{Endpoint, Settings};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Evidence, Streams};
use futures_util::StreamExt as _;

fn main() {
    let mut args = std::env::args().skip(1);
    let image = args.next().unwrap();
    let rounds: usize = args.next().map_or(30, |text| text.parse().unwrap());
    let endpoint = std::env::var("DOCKER_HOST").unwrap();
    let settings = Settings {
        endpoint: Endpoint::parse(&endpoint).unwrap(),
        image: Some(image.clone()),
        ..Settings::default()
    };
    let host = Host::detect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = Docker::connect_with_unix(&endpoint, 60, bollard::API_DEFAULT_VERSION).unwrap();
    let client = runtime.block_on(client.negotiate_version()).unwrap();
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 5 == 0 {
            eprintln!("  {round} of {rounds} done");
        }
        let begun = Instant::now();
        runtime.block_on(minimum(&client, &image));
        bare.push(begun.elapsed());
        let begun = Instant::now();
        run(&host, &settings);
        whole.push(begun.elapsed());
    }
    let paired = paired(&bare, &whole);
    let (bare, whole) = (quantiles(bare), quantiles(whole));
    let figures = serde_json::json!({
        "minimum_p50_ms": bare.0,
        "minimum_p95_ms": bare.1,
        "run_p50_ms": whole.0,
        "run_p95_ms": whole.1,
        "paired_p50_ms": paired,
    });
    println!("{figures}");
}

/// The same container, without anything that makes a run of it.
async fn minimum(client: &Docker, image: &str) {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec!["true".to_owned()]),
        user: Some("1000:1000".to_owned()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            init: Some(true),
            readonly_rootfs: Some(true),
            memory: Some(512 << 20),
            memory_swap: Some(512 << 20),
            pids_limit: Some(101),
            log_config: Some(HostConfigLogConfig {
                typ: Some("none".to_owned()),
                config: None,
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let made = client
        .create_container(None::<CreateContainerOptions>, body)
        .await
        .unwrap();
    let how = AttachContainerOptionsBuilder::default()
        .stream(true)
        .stdout(true)
        .stderr(true)
        .build();
    let mut attached = client.attach_container(&made.id, Some(how)).await.unwrap();
    let start = client.start_container(&made.id, None::<StartContainerOptions>);
    start.await.unwrap();
    while attached.output.next().await.is_some() {}
    let mut wait = client.wait_container(&made.id, None::<WaitContainerOptions>);
    let _ = wait.next().await;
    let how = RemoveContainerOptionsBuilder::default().force(true).v(true);
    client
        .remove_container(&made.id, Some(how.build()))
        .await
        .unwrap();
}

fn run(host: &Host, settings: &Settings) {
    let request = Request {
        backend: BackendName::Docker,
        ..Request::command(["true"])
    };
    let streams = Streams {
        evidence: Evidence::Full,
        ..Streams::kept(1 << 20)
    };
    let record = cofferdam_docker::run(Grant::new(request).unwrap(), streams, host, settings);
    assert_eq!(record.unwrap().exit_code, Some(0));
}

/// The middle one of the differences between two that followed each other: what a busy machine disturbs least.
fn paired(bare: &[Duration], whole: &[Duration]) -> f64 {
    let pairs = whole.iter().zip(bare);
    let mut differences: Vec<f64> = pairs
        .map(|(whole, bare)| (whole.as_secs_f64() - bare.as_secs_f64()) * 1000.0)
        .collect();
    differences.sort_unstable_by(f64::total_cmp);
    differences
        .get(differences.len() / 2)
        .copied()
        .unwrap_or(0.0)
}

/// The middle one and the 95th of a hundred, in milliseconds.
fn quantiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |share: usize| {
        let index = (times.len() * share / 100).min(times.len().saturating_sub(1));
        times
            .get(index)
            .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    (at(50), at(95))
}
