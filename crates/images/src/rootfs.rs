//! An image as the root of a run: what the request takes over from it.

use std::collections::HashSet;
use std::ffi::OsString;

use cofferdam_contract::request::{ImageRoot, Request, Root};

use crate::error::ImageError;
use crate::store::{Held, Store};

/// An image that a run uses, and that stays for as long as this lives.
#[derive(Debug)]
pub struct Rootfs {
    name: String,
    held: Held,
}

impl Rootfs {
    pub fn find(store: &Store, name: &str) -> Result<Self, ImageError> {
        Ok(Self {
            name: name.to_owned(),
            held: store.hold(name)?,
        })
    }

    /// The digest of what it is made of.
    pub fn id(&self) -> String {
        self.held.image.id.to_string()
    }

    /// Gives the request the image for its root, with the image's variables below its own, the image's command where it has none, and the image's directory where nobody says another.
    pub fn furnish(&self, request: &mut Request) {
        let start = &self.held.image.start;
        request.root = Root::Image(ImageRoot {
            dir: self.held.root.clone(),
            name: self.name.clone(),
            digest: self.held.image.id.to_string(),
            user: start.user.clone(),
        });
        // The last one of a name counts, and the request's own before any.
        let own = request.env.iter().map(|(name, _)| name.clone());
        let mut set: HashSet<OsString> = own.collect();
        let env = start.env.iter().rev();
        let env = env.filter(|(name, _)| set.insert(name.into()));
        let mut env: Vec<(OsString, OsString)> = env.map(|(n, v)| (n.into(), v.into())).collect();
        env.reverse();
        request.env.extend(env);
        if request.argv.is_empty() {
            request.argv = start.command().into_iter().map(OsString::from).collect();
        }
        let is_placed = request.cwd.is_some() || request.workspace.is_some();
        if !is_placed && start.working_dir.starts_with('/') {
            request.cwd = Some(start.working_dir.clone().into());
        }
    }
}
