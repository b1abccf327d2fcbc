//! A workspace, and whatever else of the host is shown, on its way into a container and back: copied as an archive both ways, so that no path of the host means anything to the daemon and no path of the
//! container means anything to the host.

mod beneath;
mod carried;
mod download;
mod manifest;
mod upload;

pub(crate) use carried::Carried;
pub(crate) use download::{Trouble, bring};
pub(crate) use manifest::{Manifest, Sent};
pub(crate) use upload::send;
