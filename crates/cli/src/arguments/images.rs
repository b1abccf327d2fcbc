//! The grammar of `cofferdam images`.

use clap::{Args, Subcommand};

/// The images that the container daemon has.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  cofferdam images list\n  cofferdam images pull python:3.13\n  cofferdam images prune --unused"
)]
pub(crate) struct ImagesArgs {
    #[command(subcommand)]
    pub(crate) verb: ImagesVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImagesVerb {
    /// List them, with the digests by which they can be pinned.
    List {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Get an image from its registry.
    Pull {
        /// `NAME[:TAG]` or `NAME@sha256:…`.
        #[arg(value_name = "IMAGE")]
        image: String,
        /// Print what came as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove images without a name, or every image that no container uses.
    Prune {
        /// Every image that no container uses, also those with a name.
        #[arg(long)]
        unused: bool,
        /// Print what was removed as JSON.
        #[arg(long)]
        json: bool,
    },
}
