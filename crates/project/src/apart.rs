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

/// Of a file of settings of npm or Yarn, only what names registries. Nothing is copied: npm and Yarn also end a line at a lone carriage return, and npm puts variables of its environment into what it
/// reads, so that a line can say more to them than to whoever looks at it.
pub fn registries(text: &str) -> String {
    text.split(['\r', '\n']).filter_map(registry).collect()
}

/// One setting, written anew.
fn registry(line: &str) -> Option<String> {
    let line = line.trim();
    let (key, value) = line.split_at(line.find(['=', ' ', '\t'])?);
    let key = unquoted(key);
    let is_scope = |scope: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        !scope.is_empty() && scope.chars().all(is_plain)
    };
    let scope = key
        .strip_prefix('@')
        .and_then(|rest| rest.strip_suffix(":registry"));
    if key != "registry" && !scope.is_some_and(is_scope) {
        return None;
    }
    let value = value.trim_start();
    // npm separates by `=`, Yarn by a blank.
    let (is_npm, value) = match value.strip_prefix('=') {
        Some(value) => (true, value),
        None => (false, value),
    };
    let value = unquoted(value.trim());
    let is_address = value.starts_with("https://") || value.starts_with("http://");
    let has_meaning = |c: char| !c.is_ascii_graphic() || "\"'`\\$;#".contains(c);
    if !is_address || value.contains(has_meaning) {
        return None;
    }
    Some(match is_npm {
        true => format!("{key}={value}\n"),
        false => format!("\"{key}\" \"{value}\"\n"),
    })
}

fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_settings_only_registries_are_taken() {
        let text = "registry=https://r.example/\n@a:registry = https://b.example/\nlogs-dir=/home/me\n\"@c:registry\" \"https://c.example\"\nregistry=file:///etc\nyarn-path \"./x\"\ngit=./evil https://x\n";
        assert_eq!(
            registries(text),
            "registry=https://r.example/\n@a:registry=https://b.example/\n\"@c:registry\" \"https://c.example\"\n"
        );
    }

    #[test]
    fn a_line_says_no_more_to_a_tool_than_it_does_here() {
        assert_eq!(
            registries("registry=https://r.example/\rlogs-dir=/home/me/logs\r\n"),
            "registry=https://r.example/\n"
        );
        assert_eq!(
            registries("registry \"https://x\"\r--install.modules-folder \"/home/me/x\"\n"),
            "\"registry\" \"https://x\"\n"
        );
        for refused in [
            "registry=https://evil.example/${HTTPS_PROXY}",
            "registry=file:///x#https://",
            "registry=https://x\u{85}logs-dir=/home/me",
            "registry=https://x\u{b}logs-dir=/home/me",
            "registry=\"https://x",
            "registry=https://x ; y",
            "@${HOME}:registry=https://x",
            "registry[]=https://x",
            "registry",
            "registry=",
            "",
        ] {
            assert_eq!(registries(refused), "", "{refused}");
        }
    }
}
