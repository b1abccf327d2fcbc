//! Which disks hold what a run can reach: those whose use is bounded. A file system without a disk of its own, such as a tmpfs or an overlay, has none to bound.

use std::path::Path;

use cofferdam_contract::request::Request;
use cofferdam_sys::cgroup::IoBounds;

/// By major and minor number.
pub(crate) type Devices = [Option<(u32, u32)>; IoBounds::MAX_DEVICES];

/// What is asked for, on the disks that it is asked for.
pub(crate) fn bounds(request: &Request) -> Option<IoBounds> {
    let rates = request.limits.disk_io.at_most()?;
    Some(IoBounds {
        devices: of(request).ok()?,
        read_bps: rates.read_bps,
        write_bps: rates.write_bps,
        read_iops: rates.read_iops,
        write_iops: rates.write_iops,
    })
}

/// The disks of the workspace and of what is mounted; without a workspace those of the root. In words, why one of them cannot be bounded.
pub(crate) fn of(request: &Request) -> Result<Devices, String> {
    let root = request.root.dir().unwrap_or(Path::new("/usr"));
    let work = request.workspace.as_ref();
    let work = work.map_or(root, |workspace| workspace.path.as_path());
    let mounts = request.mounts.iter().map(|mount| mount.source.as_path());
    let mut devices = Devices::default();
    for path in std::iter::once(work).chain(mounts) {
        let disk = disk_of(path)?;
        if devices.contains(&Some(disk)) {
            continue;
        }
        match devices.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(disk),
            None => {
                let most = IoBounds::MAX_DEVICES;
                return Err(format!("what is mounted lies on more than {most} disks"));
            }
        }
    }
    Ok(devices)
}

fn disk_of(path: &Path) -> Result<(u32, u32), String> {
    let failed = |what: &str| format!("{what} `{}`", path.display());
    let stat = rustix::fs::stat(path).map_err(|_| failed("nothing is known of the disk of"))?;
    let own = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    let Some(place) = known(own) else {
        return Err(failed("no disk of its own holds the file system of"));
    };
    // The kernel bounds whole disks.
    if !place.join("partition").exists() {
        return Ok(own);
    }
    let whole = place.canonicalize().ok();
    let whole = whole.as_deref().and_then(Path::parent);
    let number = whole.and_then(|disk| std::fs::read_to_string(disk.join("dev")).ok());
    number
        .as_deref()
        .and_then(read_number)
        .ok_or_else(|| failed("the disk cannot be found that holds"))
}

/// Its entry among the block devices.
fn known((major, minor): (u32, u32)) -> Option<std::path::PathBuf> {
    let place = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    place.exists().then_some(place)
}

fn read_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_a_disk_is_said_to_have_none() {
        let why = disk_of(Path::new("/proc")).unwrap_err();
        assert!(why.contains("no disk of its own"), "{why}");
        assert!(disk_of(Path::new("/no/such/place")).is_err());
        assert_eq!(read_number("254:0\n"), Some((254, 0)));
        assert_eq!(read_number("254"), None);
    }
}
