//! Finding what a step says of the lines that its tests reached. It lies in the step's own directory, or one below it; no link is followed on the way.

use std::path::Path;

use cofferdam_project::Beneath;
use cofferdam_project::coverage::{CoverageAt, CoverageFormat, Covered, Room};

/// More directories than any tool makes for one step.
const MOST_DIRS: usize = 1000;

/// The project as the step saw it, and where in it the step ran, relative to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) root: &'a str,
    pub(crate) dir: &'a str,
}

/// `None` where there is none that can be read within the room for it, or the time is over before all is read.
pub(crate) fn read(
    at: &CoverageAt,
    own: &Path,
    Seen { root, dir }: Seen<'_>,
    room: &mut Room,
    is_over: &dyn Fn() -> bool,
) -> Option<Covered> {
    let held = Beneath::open(own).ok()?;
    let mut all: Option<Covered> = None;
    for name in names(at.name, own) {
        if is_over() {
            return None;
        }
        let Ok(bytes) = held.read(&name, room.largest()) else {
            continue;
        };
        let Ok(mut read) = Covered::parse(at.format, &bytes, root, room) else {
            continue;
        };
        for file in &mut read.files {
            // LCOV names files as seen from where the tool was started.
            let is_below = dir.is_empty() || file.file.starts_with(&format!("{dir}/"));
            if at.format == CoverageFormat::Lcov && !is_below && !file.file.starts_with('/') {
                file.file = format!("{dir}/{}", file.file);
            }
        }
        match &mut all {
            Some(all) => all.add(&read),
            None => all = Some(read),
        }
    }
    all
}

fn names(name: &str, own: &Path) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    let entries = std::fs::read_dir(own).into_iter().flatten().flatten();
    for entry in entries.take(MOST_DIRS) {
        if let Some(dir) = entry.file_name().to_str() {
            names.push(format!("{dir}/{name}"));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_found_one_level_down_and_not_through_a_link() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("own");
        std::fs::create_dir_all(own.join("coverage")).unwrap();
        let at = CoverageAt {
            name: "lcov.info",
            format: CoverageFormat::Lcov,
        };
        let look = |dir, is_over: &dyn Fn() -> bool| {
            let seen = Seen { root: "/work", dir };
            read(&at, &own, seen, &mut Room::new(10), is_over)
        };
        assert_eq!(look("", &|| false), None);
        let text = "SF:src/a.js\nDA:1,1\nDA:2,0\nend_of_record\n";
        std::fs::write(top.path().join("lcov.info"), text).unwrap();
        std::os::unix::fs::symlink(top.path(), own.join("link")).unwrap();
        std::os::unix::fs::symlink("../lcov.info", own.join("lcov.info")).unwrap();
        assert_eq!(look("", &|| false), None);
        std::fs::write(own.join("coverage/lcov.info"), text).unwrap();
        assert_eq!(look("web", &|| true), None);
        let found = look("web", &|| false).unwrap();
        assert_eq!(found.files[0].file, "web/src/a.js");
        assert_eq!((found.lines.covered, found.lines.total), (1, 2));
    }
}
