//! What was found in a tree: projects, with what is known of them from their manifests. Only data.

use serde::{Deserialize, Serialize};

/// Everything that was found below one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detection {
    /// By path, the outermost first; a workspace stands before its members.
    pub projects: Vec<Project>,
    /// How many entries were looked at.
    pub entries: u64,
    /// What was not looked at or could not be read, in words.
    pub notes: Vec<String>,
}

/// One project: a directory with a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Project {
    pub ecosystem: Ecosystem,
    pub kind: ProjectKind,
    /// The directory, relative to where the search began; `.` is that place itself.
    pub path: String,
    /// The file that makes it one, relative to the same place.
    pub manifest: String,
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package_manager: Option<PackageManager>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_file: Option<String>,
    /// The version of the toolchain that the project asks for, and where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wants: Option<Wanted>,
    /// Manifests of the members of a workspace, a solution or a module tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// The projects of this tree that this one uses, by manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Names of scripts that the manifest has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<String>,
    /// What is started when it is run: a script, a file, a module, a package or a class, as its ecosystem names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    pub frameworks: Vec<Framework>,
    /// Whether it is there for its tests.
    pub is_test: bool,
    /// What the script `test` says; decides whether arguments can be handed to it.
    #[serde(skip)]
    pub test_script: Option<String>,
    /// Packages that it asks for by plain name and version, as an index knows them.
    #[serde(skip)]
    pub requirements: Vec<String>,
    /// What builds it, by name.
    #[serde(skip)]
    pub build_requirements: Vec<String>,
    /// What else is known of it, such as `typescript` or `eslint`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<String>,
}

/// A version that was asked for, and by which file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wanted {
    pub version: String,
    pub by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecosystem {
    Dotnet,
    Node,
    Python,
    Rust,
    Go,
    Java,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectKind {
    Single,
    /// Holds members that are built with it.
    Workspace,
    /// Is built with the workspace that holds it.
    Member,
    /// A list of .NET projects.
    Solution,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageManager {
    Npm,
    Yarn,
    Pnpm,
    Pip,
    Uv,
    Cargo,
    Go,
    Maven,
    Nuget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    NodeTest,
    Jest,
    Vitest,
    Mocha,
    Pytest,
    Unittest,
    CargoTest,
    Nextest,
    GoTest,
    Surefire,
    Vstest,
}

impl Ecosystem {
    pub const ALL: [Self; 6] = [
        Self::Dotnet,
        Self::Node,
        Self::Python,
        Self::Rust,
        Self::Go,
        Self::Java,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dotnet => "dotnet",
            Self::Node => "node",
            Self::Python => "python",
            Self::Rust => "rust",
            Self::Go => "go",
            Self::Java => "java",
        }
    }
}

impl ProjectKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Single => "project",
            Self::Workspace => "workspace",
            Self::Member => "member",
            Self::Solution => "solution",
        }
    }
}

impl PackageManager {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Yarn => "yarn",
            Self::Pnpm => "pnpm",
            Self::Pip => "pip",
            Self::Uv => "uv",
            Self::Cargo => "cargo",
            Self::Go => "go",
            Self::Maven => "maven",
            Self::Nuget => "nuget",
        }
    }
}

impl Framework {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeTest => "node:test",
            Self::Jest => "jest",
            Self::Vitest => "vitest",
            Self::Mocha => "mocha",
            Self::Pytest => "pytest",
            Self::Unittest => "unittest",
            Self::CargoTest => "cargo test",
            Self::Nextest => "nextest",
            Self::GoTest => "go test",
            Self::Surefire => "surefire",
            Self::Vstest => "vstest",
        }
    }
}

impl Project {
    /// With nothing known but its place.
    pub(crate) fn new(ecosystem: Ecosystem, manifest: &str) -> Self {
        Self {
            ecosystem,
            kind: ProjectKind::Single,
            path: parent(manifest).to_owned(),
            manifest: manifest.to_owned(),
            name: None,
            package_manager: None,
            lock_file: None,
            wants: None,
            members: Vec::new(),
            references: Vec::new(),
            scripts: Vec::new(),
            program: None,
            frameworks: Vec::new(),
            is_test: false,
            test_script: None,
            requirements: Vec::new(),
            build_requirements: Vec::new(),
            uses: Vec::new(),
        }
    }

    pub fn uses(&self, what: &str) -> bool {
        self.uses.iter().any(|used| used == what)
    }
}

impl Detection {
    /// The projects that are acted on: those that no other one acts on already.
    pub fn tops(&self) -> impl Iterator<Item = &Project> {
        self.projects
            .iter()
            .filter(|project| project.kind != ProjectKind::Member)
    }
}

/// The directory of a relative path; `.` for a name alone.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((dir, _)) => dir,
        None => ".",
    }
}

/// A name in a directory, both relative to the same place.
pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir == "." {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}
