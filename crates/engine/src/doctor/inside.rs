//! What a program sees when it looks around inside: its namespaces, rights and devices, as a shell script reports them.

use std::collections::BTreeMap;

/// Prints the lines that [`Inside::read`] reads. Builtins where they will do: a host need not have more than a shell.
pub(super) const SCRIPT: &str = r#"
while read -r line; do echo "status $line"; done < /proc/self/status
while read -r line; do echo "device $line"; done < /proc/net/dev
(: > /cofferdam-probe) 2>/dev/null && echo "root writable" || echo "root read-only"
ls -l /proc/self/ns/ | while read -r line; do echo "ns $line"; done
chroot / /bin/true
exit 0
"#;

/// The report of the script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inside {
    status: BTreeMap<String, String>,
    namespaces: BTreeMap<String, String>,
    pub(super) devices: Vec<String>,
    pub(super) root_is_read_only: Option<bool>,
}

impl Inside {
    pub(super) fn read(output: &str) -> Self {
        let mut inside = Self::default();
        for line in output.lines() {
            match line.split_once(' ') {
                Some(("status", rest)) => {
                    if let Some((name, value)) = rest.split_once(':') {
                        inside
                            .status
                            .insert(name.to_owned(), value.trim().to_owned());
                    }
                }
                Some(("ns", rest)) => inside.namespaces.extend(namespace(rest)),
                Some(("device", rest)) => {
                    let name = rest.split_once(':').map(|(name, _)| name.trim().to_owned());
                    inside.devices.extend(name);
                }
                Some(("root", rest)) => inside.root_is_read_only = Some(rest == "read-only"),
                _ => {}
            }
        }
        inside
    }

    /// A field of /proc/self/status, where there is a /proc.
    pub(super) fn status(&self, name: &str) -> Option<&str> {
        self.status.get(name).map(String::as_str)
    }

    /// The namespace of this kind as the kernel names it: `pid:[4026531836]`.
    pub(super) fn namespace(&self, kind: &str) -> Option<&str> {
        self.namespaces.get(kind).map(String::as_str)
    }
}

/// `lrwxrwxrwx 1 sandbox sandbox 0 Nov 15 11:00 pid -> 'pid:[4026532200]'`.
fn namespace(listed: &str) -> Option<(String, String)> {
    let (before, target) = listed.split_once(" -> ")?;
    let kind = before.rsplit(' ').next()?;
    Some((kind.to_owned(), target.trim_matches('\'').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read_line_by_line() {
        let inside = Inside::read(
            "status Name:\tsh\nstatus CapEff:\t0000000000000000\ndevice Inter-|   Receive\ndevice lo: 0 0\nroot read-only\n\
             ns total 0\nns lrwxrwxrwx 1 sandbox sandbox 0 Nov 15 11:00 pid -> 'pid:[4026532200]'\nnoise\n",
        );
        assert_eq!(inside.status("CapEff"), Some("0000000000000000"));
        assert_eq!(inside.namespace("pid"), Some("pid:[4026532200]"));
        assert_eq!(inside.devices, ["lo"]);
        assert_eq!(inside.root_is_read_only, Some(true));
        assert_eq!(Inside::read(""), Inside::default());
    }
}
