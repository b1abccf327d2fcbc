//! `sandbox.docker`: keys of its own beside the limits.

use super::super::docker::DockerKey;
use super::super::setting::Setting;
use super::super::yaml::{Node, Value};
use super::{FileLayer, Reader, SECTION_ALIASES};

impl Reader<'_> {
    /// Its own keys, and limits for this backend alone.
    pub(super) fn docker(&mut self, section: &str, node: Node, layer: &mut FileLayer) {
        let line = node.line;
        let mut limits = Vec::new();
        for (key, node) in self.entries(section, node) {
            let known = DockerKey::ALL
                .into_iter()
                .find(|known| known.yaml() == key.name);
            let Some(known) = known else {
                limits.push((key, node));
                continue;
            };
            let field = format!("{section}.{}", key.name);
            let Some((line, value)) = self.scalar(&field, node) else {
                continue;
            };
            match known.check(&value) {
                Ok(()) => {
                    let origin = self.origin(line);
                    layer.docker_keys.push((known, Setting { value, origin }));
                }
                Err(fix) => self.complain(Some(line), &field, &value, fix),
            }
        }
        let limits = Node {
            line,
            value: Value::Map(limits),
        };
        self.limits(section, limits, &SECTION_ALIASES, &mut layer.docker);
    }
}
