//! The grammar of `cofferdam images`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_contract::units::{Bytes, parse_duration};

use super::words;

/// Images: what a container daemon has, and what is unpacked here for the native backend.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam images list\n  cofferdam images build python\n  cofferdam images pull --store native registry.example:5000/tool:1\n  cofferdam images import image.tar\n  cofferdam images prune --unused\n  cofferdam run --image registry.example:5000/tool:1 -- tool"
)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    pub(crate) verb: ImagesVerb,
}

/// Where an image is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreName {
    /// Unpacked here, for --backend native.
    Native,
    /// In the container daemon, for --backend docker.
    Docker,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesVerb {
    /// List them, with the digests by which they can be pinned.
    #[command(
        after_long_help = "Examples:\n  cofferdam images list\n  cofferdam images list --json"
    )]
    List {
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Get an image from its registry.
    #[command(
        after_long_help = "Examples:\n  cofferdam images pull python:3.13\n  cofferdam images pull --store native registry.example:5000/tool:1"
    )]
    Pull(PullArgs),
    /// Unpack an image for the native backend, from a file of `docker save`, an OCI layout, or the container daemon.
    #[command(
        after_long_help = "Examples:\n  cofferdam images import image.tar\n  cofferdam images import --docker python:3.13"
    )]
    Import(ImportArgs),
    /// Build images by the container daemon: ours by name, or a directory with a Dockerfile.
    #[command(
        after_long_help = "Examples:\n  cofferdam images build python\n  cofferdam images build ./tool --name tool:1"
    )]
    Build(BuildArgs),
    /// Remove images by name or id.
    #[command(after_long_help = "Example:\n  cofferdam images rm tool:1")]
    Rm {
        /// `NAME[:TAG]`, `NAME@sha256:…` or an id. An unpacked image goes with its last tag.
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
        /// In which store [default: wherever it is].
        #[arg(help_heading = "Registry", long, value_enum, value_name = "WHERE")]
        store: Option<StoreName>,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
    /// Remove images without a name, or every image that nothing uses.
    #[command(
        after_long_help = "Examples:\n  cofferdam images prune\n  cofferdam images prune --unused --store native"
    )]
    Prune {
        /// Every image that no container and no run uses, also those with a name.
        #[arg(long)]
        unused: bool,
        /// In which store [default: both].
        #[arg(help_heading = "Registry", long, value_enum, value_name = "WHERE")]
        store: Option<StoreName>,
        #[arg(long, help = words::JSON, help_heading = "Output")]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// `NAME[:TAG]` or `NAME@sha256:…`; into our own store with its registry in front: `HOST[:PORT]/NAME`.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: String,
    /// In which store [default: the container daemon's where one answers, else our own].
    #[arg(help_heading = "Registry", long, value_enum, value_name = "WHERE")]
    pub(crate) store: Option<StoreName>,
    /// With --store native: speak to the registry without encryption. One on this machine always is.
    #[arg(help_heading = "Registry", long)]
    pub(crate) plain_http: bool,
    /// With --store native: a file with names and passwords, as Docker's clients keep them; only you may be able to read it.
    #[arg(help_heading = "Registry", long, value_name = "FILE")]
    pub(crate) credentials: Option<PathBuf>,
    /// With --store native: believe certificates of these authorities, in PEM form, and no others; speaks https to a registry on this machine too.
    #[arg(
        help_heading = "Registry",
        long,
        value_name = "FILE",
        conflicts_with = "plain_http"
    )]
    pub(crate) ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The file.
    #[arg(value_name = "FILE", required_unless_present = "docker")]
    pub(crate) file: Option<PathBuf>,
    /// Take this image from the container daemon instead of a file.
    #[arg(long, value_name = "IMAGE", conflicts_with = "file")]
    pub(crate) docker: Option<String>,
    /// What it is called [default: what the file says].
    #[arg(long, value_name = "NAME[:TAG]")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) bounds: BoundArgs,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

/// How much is taken of a stranger's image.
#[derive(Debug, Args)]
pub(crate) struct BoundArgs {
    /// How large an image may be when it is unpacked.
    #[arg(
        help_heading = "Bounds",
        long,
        value_name = "SIZE",
        default_value = "16g"
    )]
    pub(crate) max_size: Bytes,
    /// How long it may take.
    #[arg(help_heading = "Bounds", long, value_name = "TIME", default_value = "10m", value_parser = time)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// `base`, `python`, `node`, `java`, `dotnet`, or a directory with a Dockerfile [default: all of ours].
    #[arg(value_name = "NAME|DIR")]
    pub(crate) what: Vec<String>,
    /// What it is called [default: `cofferdam/NAME`, or the directory's name].
    #[arg(long, alias = "tag", value_name = "NAME[:TAG]")]
    pub(crate) name: Option<String>,
    /// A build argument, such as BASE=debian:trixie-slim. Can be given more than once.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) build_arg: Vec<String>,
    /// Build every step anew.
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// How long it may take.
    #[arg(help_heading = "Bounds", long, value_name = "TIME", default_value = "30m", value_parser = time)]
    pub(crate) timeout: Duration,
    #[arg(long, help = words::JSON, help_heading = "Output")]
    pub(crate) json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|bad| bad.to_string())?;
    match time.is_zero() {
        true => Err("is no time at all; write one such as `10m`".to_owned()),
        false => Ok(time),
    }
}
