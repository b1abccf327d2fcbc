//! What a tool sees where it runs without walls: not the project, but copies of the few files that it needs, in a directory of its own. What a stranger or a sandbox has left in the project is then
//! neither obeyed nor written through, and nothing of it is removed.

/// What is copied, by paths relative to the searched directory, and what comes back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apart {
    /// As they are.
    pub files: Vec<String>,
    /// Settings of which only the lines that name registries are taken: others name programs and places to write to.
    pub settings: Vec<String>,
    /// Written by us: path and contents.
    pub written: Vec<(String, String)>,
    /// What the tool makes and the project does not have yet.
    pub brings: Option<String>,
}

/// Of a file of settings of npm or Yarn, only what names registries.
pub fn registries(text: &str) -> String {
    let is_registry = |line: &&str| {
        let key = line.trim_start().split(['=', ' ', '\t']).next();
        let key = key.unwrap_or_default().trim_matches('"');
        let is_address = line.contains("https://") || line.contains("http://");
        is_address && (key == "registry" || (key.starts_with('@') && key.ends_with(":registry")))
    };
    let lines = text.lines().filter(is_registry);
    lines.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_settings_only_registries_are_taken() {
        let text = "registry=https://r.example/\n@a:registry = https://b.example/\nlogs-dir=/home/me\n\"@c:registry\" \"https://c.example\"\nregistry=file:///etc\nyarn-path \"./x\"\ngit=./evil https://x\n";
        assert_eq!(
            registries(text),
            "registry=https://r.example/\n@a:registry = https://b.example/\n\"@c:registry\" \"https://c.example\"\n"
        );
    }
}
