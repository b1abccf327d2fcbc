//! All languages that are known: those that come with the program, and those in a directory of the user's, which win.

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cofferdam_contract::problem::Problem;

use crate::builtin;
use crate::language::{Language, Origin};
use crate::manifest;

/// A manifest, and a shim, have this many bytes at most.
const MAX_FILE_BYTES: u64 = 256 << 10;
const MAX_MANIFESTS: usize = 200;

/// The languages, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    languages: Vec<Language>,
}

/// Everything that is wrong with the manifests, each with its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadManifests(Vec<(PathBuf, Problem)>);

/// No language has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no language `{name}`; {}", hint(.did_you_mean.as_deref()))]
pub struct UnknownLanguage {
    pub name: String,
    /// The name that is nearest, when one is near.
    pub did_you_mean: Option<String>,
}

impl Catalogue {
    /// The languages that come with the program.
    pub fn builtin() -> Result<Self, BadManifests> {
        let mut bad = Vec::new();
        let mut languages = Vec::new();
        for (file, text) in builtin::MANIFESTS {
            let shim = |name: &str| builtin::shim(name).ok_or_else(|| NO_SHIM.to_owned());
            match manifest::read(text, Origin::BuiltIn, &shim) {
                Ok(language) => languages.push((PathBuf::from(file), language)),
                Err(found) => bad.extend(found.into_iter().map(|p| (PathBuf::from(file), p))),
            }
        }
        bad.extend(taken_names(&languages));
        let languages = languages
            .into_iter()
            .map(|(_, language)| language)
            .collect();
        Self { languages }.unless(bad)
    }

    /// Adds the manifests `*.toml` of a directory, with their shims in `shims/` below it or from those built in. They win over what is
    /// there: a language of the same name is replaced, and an alias moves to the newcomer.
    pub fn with_dir(mut self, dir: &Path) -> Result<Self, BadManifests> {
        let mut bad = Vec::new();
        let mut added = Vec::new();
        for path in
            manifests_in(dir).map_err(|problem| BadManifests(vec![(dir.into(), problem)]))?
        {
            let shim = |name: &str| read_shim(dir, name);
            let origin = Origin::File(path.clone());
            let read = read_file(&path)
                .map_err(|fix| vec![Problem::new("manifest", path.display(), fix)])
                .and_then(|text| manifest::read(&text, origin, &shim));
            match read {
                Ok(language) => added.push((path, language)),
                Err(found) => bad.extend(found.into_iter().map(|problem| (path.clone(), problem))),
            }
        }
        bad.extend(taken_names(&added));
        bad.extend(self.hidden_names(&added));
        for (_, language) in added {
            self.replace(language);
        }
        self.unless(bad)
    }

    /// The language with that name or alias, in any case.
    pub fn find(&self, name: &str) -> Result<&Language, UnknownLanguage> {
        let wanted = name.to_lowercase();
        self.languages
            .iter()
            .find(|language| language.is_called(&wanted))
            .ok_or_else(|| UnknownLanguage {
                name: name.chars().take(MAX_ECHO).collect(),
                did_you_mean: self.nearest(&wanted),
            })
    }

    /// Every language, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Language> {
        self.languages.iter()
    }

    /// Aliases that are the name of a language which stays: which of the two answers to it would be chance.
    fn hidden_names(&self, added: &[(PathBuf, Language)]) -> Vec<(PathBuf, Problem)> {
        let stays = |name: &str| {
            let is_replaced = added.iter().any(|(_, language)| language.name == name);
            let mut known = self.languages.iter();
            !is_replaced && known.any(|language| language.name == name)
        };
        let aliases = added
            .iter()
            .flat_map(|(file, language)| language.aliases.iter().map(move |alias| (file, alias)));
        let hidden = aliases.filter(|(_, alias)| stays(alias));
        hidden
            .map(|(file, alias)| {
                let fix = "is the name of another language; use another, or make it the name of this one to replace that";
                (file.clone(), Problem::new("aliases", alias, fix))
            })
            .collect()
    }

    fn replace(&mut self, newcomer: Language) {
        self.languages
            .retain(|language| language.name != newcomer.name);
        for language in &mut self.languages {
            language.aliases.retain(|alias| !newcomer.is_called(alias));
        }
        self.languages.push(newcomer);
    }

    fn unless(mut self, bad: Vec<(PathBuf, Problem)>) -> Result<Self, BadManifests> {
        if !bad.is_empty() {
            return Err(BadManifests(bad));
        }
        self.languages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(self)
    }

    fn nearest(&self, wanted: &str) -> Option<String> {
        // A name is short; a long text is no misspelling of one.
        if wanted.len() > MAX_ECHO {
            return None;
        }
        let names = self
            .languages
            .iter()
            .flat_map(|language| std::iter::once(&language.name).chain(&language.aliases));
        names
            .map(|name| (distance(wanted, name), name))
            .filter(|(distance, name)| *distance <= 2 && *distance < name.chars().count())
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name.clone())
    }
}

const MAX_ECHO: usize = 64;
const NO_SHIM: &str = "is not there; put the file into shims/";

impl BadManifests {
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Problem)> {
        self.0
            .iter()
            .map(|(file, problem)| (file.as_path(), problem))
    }
}

impl fmt::Display for BadManifests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (file, problem)) in self.0.iter().enumerate() {
            let line = if i > 0 { "\n" } else { "" };
            write!(f, "{line}{}: {problem}", file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for BadManifests {}

fn hint(did_you_mean: Option<&str>) -> String {
    match did_you_mean {
        Some(name) => format!("did you mean `{name}`?"),
        None => "write one such as python, javascript or shell".to_owned(),
    }
}

/// Names that two manifests of the same place both claim.
fn taken_names(languages: &[(PathBuf, Language)]) -> Vec<(PathBuf, Problem)> {
    let mut found = Vec::new();
    for (i, (file, language)) in languages.iter().enumerate() {
        for (other_file, other) in languages.iter().take(i) {
            let names = std::iter::once(&language.name).chain(&language.aliases);
            for name in names.filter(|name| other.is_called(name)) {
                let fix = format!("is taken by {}; use another", other_file.display());
                found.push((file.clone(), Problem::new("name", name, fix)));
            }
        }
    }
    found
}

fn manifests_in(dir: &Path) -> Result<Vec<PathBuf>, Problem> {
    let failed = |error: std::io::Error| {
        Problem::new(
            "languages",
            dir.display(),
            format!("cannot be read: {error}"),
        )
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            paths.push(path);
        }
        if paths.len() > MAX_MANIFESTS {
            let fix = format!("has more than {MAX_MANIFESTS} manifests; remove some");
            return Err(Problem::new("languages", dir.display(), fix));
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_shim(dir: &Path, name: &str) -> Result<String, String> {
    if name.contains('/') {
        return Err("is not a plain file name".to_owned());
    }
    let path = dir.join("shims").join(name);
    if path.exists() {
        return read_file(&path);
    }
    builtin::shim(name).ok_or_else(|| NO_SHIM.to_owned())
}

fn read_file(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is not a regular file; replace it by one".to_owned());
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(cannot)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    if u64::try_from(text.len()).is_ok_and(|bytes| bytes > MAX_FILE_BYTES) {
        return Err(format!("is longer than {MAX_FILE_BYTES} bytes; shorten it"));
    }
    Ok(text)
}

/// Insertions, deletions and replacements from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "name = \"python\"\naliases = [\"js\"]\ntitle = \"Mine\"\nfile = \"main.py\"\n\
                       [[toolchain]]\nprobe = [\"p\"]\nrun = [\"p\", \"{file}\"]\n";

    #[test]
    fn the_languages_that_come_with_it_are_valid_and_complete() {
        let catalogue = Catalogue::builtin().unwrap();
        let names: Vec<&str> = catalogue.all().map(|l| l.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "c",
                "cpp",
                "go",
                "java",
                "javascript",
                "lua",
                "perl",
                "php",
                "python",
                "r",
                "ruby",
                "rust",
                "shell",
                "typescript"
            ]
        );
        let handlers: Vec<&str> = catalogue
            .all()
            .filter(|l| l.has_handlers())
            .map(|l| l.name.as_str())
            .collect();
        assert_eq!(handlers, ["javascript", "python", "shell", "typescript"]);
    }

    #[test]
    fn languages_are_found_by_every_name_and_misspellings_get_a_hint() {
        let catalogue = Catalogue::builtin().unwrap();
        for (name, expected) in [
            ("C++", "cpp"),
            ("js", "javascript"),
            ("Python3", "python"),
            ("bash", "shell"),
        ] {
            assert_eq!(catalogue.find(name).unwrap().name, expected);
        }
        for (name, expected) in [
            ("pyton", Some("python")),
            ("javscript", Some("javascript")),
            ("cobol", None),
            ("", None),
        ] {
            let unknown = catalogue.find(name).unwrap_err();
            assert_eq!(unknown.did_you_mean.as_deref(), expected, "{name}");
        }
        let long = catalogue.find(&"x".repeat(10_000)).unwrap_err();
        assert_eq!(long.name.len(), MAX_ECHO);
        assert_eq!(
            catalogue.find("pyton").unwrap_err().to_string(),
            "there is no language `pyton`; did you mean `python`?"
        );
    }

    #[test]
    fn an_alias_that_is_the_name_of_another_language_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = OWN.replace("\"python\"", "\"zz\"");
        fs::write(
            dir.path().join("own.toml"),
            own.replace("\"js\"", "\"ruby\""),
        )
        .unwrap();
        let refused = Catalogue::builtin().unwrap().with_dir(dir.path());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("name of another language"), "{refused}");
        fs::write(dir.path().join("own.toml"), own).unwrap();
        let catalogue = Catalogue::builtin().unwrap().with_dir(dir.path()).unwrap();
        assert_eq!(catalogue.find("js").unwrap().name, "zz");
    }

    #[test]
    fn the_users_manifests_win() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("own.toml"), OWN).unwrap();
        fs::write(dir.path().join("notes.txt"), "not a manifest").unwrap();
        let catalogue = Catalogue::builtin().unwrap().with_dir(dir.path()).unwrap();
        assert_eq!(catalogue.find("python").unwrap().title, "Mine");
        assert_eq!(catalogue.find("js").unwrap().title, "Mine");
        assert_eq!(catalogue.find("node").unwrap().title, "JavaScript");
        assert_eq!(catalogue.all().count(), builtin::MANIFESTS.len());
    }

    #[test]
    fn every_bad_manifest_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a.toml"), OWN).unwrap();
        fs::write(at("b.toml"), OWN.replace("python", "other")).unwrap();
        fs::write(at("c.toml"), "name = 1").unwrap();
        fs::write(at("d.toml"), vec![b'#'; 300 << 10]).unwrap();
        fs::write(at("e.toml"), [0xff]).unwrap();
        fs::create_dir(at("f.toml")).unwrap();
        let bad = Catalogue::builtin()
            .unwrap()
            .with_dir(dir.path())
            .unwrap_err();
        let mut files: Vec<_> = bad
            .iter()
            .map(|(file, _)| file.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.dedup();
        assert_eq!(
            files,
            ["c.toml", "d.toml", "e.toml", "f.toml", "b.toml"],
            "{bad}"
        );
        assert!(
            bad.to_string().contains("b.toml: name: is taken by"),
            "{bad}"
        );
        let missing = Catalogue::builtin()
            .unwrap()
            .with_dir(&at("none"))
            .unwrap_err();
        assert!(missing.to_string().contains("cannot be read"), "{missing}");
    }

    #[test]
    fn a_users_shim_is_read_from_its_directory_and_from_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shims")).unwrap();
        fs::write(dir.path().join("shims/x.py"), "mine").unwrap();
        fs::write(dir.path().join("secret"), "no").unwrap();
        assert_eq!(read_shim(dir.path(), "x.py"), Ok("mine".to_owned()));
        assert!(
            read_shim(dir.path(), "python.py")
                .is_ok_and(|text| text.contains("COFFERDAM_RESULT_FD"))
        );
        assert!(read_shim(dir.path(), "../secret").is_err());
    }

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("kitten", "sitting", 3),
            ("pyton", "python", 1),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
