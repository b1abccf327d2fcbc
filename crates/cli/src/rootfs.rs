//! `--image` for the native backend: an image that was unpacked here.

use cofferdam_contract::request::BackendName;
use cofferdam_images::{Rootfs, Store};
use cofferdam_store::DataDir;

use crate::arguments::ContainerArgs;
use crate::failure::Failure;

/// The image that was asked for, where it is for us to find it.
pub(crate) fn find(
    args: &ContainerArgs,
    backend: BackendName,
    dir: Option<&DataDir>,
) -> Result<Option<Rootfs>, Failure> {
    let Some(name) = args
        .image
        .as_ref()
        .filter(|_| backend == BackendName::Native)
    else {
        return Ok(None);
    };
    Ok(Some(Rootfs::find(&store(dir)?, name)?))
}

pub(crate) fn store(dir: Option<&DataDir>) -> Result<Store, Failure> {
    let fix = "says where unpacked images are; name a directory";
    dir.map(Store::of)
        .ok_or_else(|| Failure::problem("--data-dir", "", fix))
}
