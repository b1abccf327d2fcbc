//! Images without a container daemon. An image comes from a [`registry`] or an [`archive`], every byte of it is checked against its digest while it is unpacked beneath a
//! directory of our own ([`layer`]), and the whole is put into the [`store`] in one step. What is there is used as the root of a native sandbox.
//!
//! Nothing of an image is trusted: names, links, sizes and counts are a stranger's.

pub mod archive;
mod beneath;
pub mod bounds;
pub mod build_context;
mod compression;
pub mod config;
mod credentials;
pub mod digest;
mod entries;
pub mod error;
pub mod get;
mod layer;
mod manifest;
mod names;
pub mod reference;
pub mod registry;
pub mod rootfs;
pub mod store;

pub use bounds::Bounds;
pub use error::ImageError;
pub use get::Progress;
pub use rootfs::Rootfs;
pub use store::{Held, Store, Stored};
