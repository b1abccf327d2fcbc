//! The files that come with a request, in its text or beside it, and what is wrong with them.

use std::collections::BTreeSet;

use cofferdam_contract::problem::Problem;
use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workspace::{self, Executable, MAX_FILES, PlacedFile};

/// A file to be placed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRequest {
    /// Relative, such as `src/main.py`.
    pub(crate) path: String,
    /// Text.
    pub(crate) content: Option<String>,
    /// Bytes, in base64.
    pub(crate) content_base64: Option<String>,
    #[serde(default)]
    pub(crate) executable: bool,
}

impl From<PlacedFile> for FileRequest {
    fn from(file: PlacedFile) -> Self {
        Self {
            path: file.path,
            content: None,
            content_base64: Some(BASE64.encode(&file.content)),
            executable: file.executable == Executable::Yes,
        }
    }
}

/// All of them, ready to be placed.
pub(crate) fn placed(
    files: &[FileRequest],
    uploads: Vec<PlacedFile>,
    problems: &mut Vec<Problem>,
) -> Vec<PlacedFile> {
    let count = files.len() + uploads.len();
    if count > MAX_FILES {
        let fix = format!("are too many; send at most {MAX_FILES}");
        problems.push(Problem::new("files", count, fix));
        return Vec::new();
    }
    let mut placed = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let field = format!("files[{index}]");
        problems.extend(workspace::problem(&format!("{field}.path"), &file.path));
        let content = one_of(
            (&format!("{field}.content"), file.content.as_deref()),
            (
                &format!("{field}.content_base64"),
                file.content_base64.as_deref(),
            ),
            problems,
        );
        placed.push(PlacedFile {
            path: file.path.clone(),
            content: content.unwrap_or_default(),
            executable: if file.executable {
                Executable::Yes
            } else {
                Executable::No
            },
        });
    }
    for (index, file) in uploads.iter().enumerate() {
        problems.extend(workspace::problem(&format!("file[{index}]"), &file.path));
    }
    placed.extend(uploads);
    let mut names = BTreeSet::new();
    for (index, file) in placed.iter().enumerate() {
        if !names.insert(&file.path) {
            let field = format!("files[{index}].path");
            problems.push(Problem::new(field, &file.path, "is there twice; keep one"));
        }
    }
    placed
}

/// Text or base64, not both.
pub(crate) fn one_of(
    text: (&str, Option<&str>),
    base64: (&str, Option<&str>),
    problems: &mut Vec<Problem>,
) -> Option<Vec<u8>> {
    match (text.1, base64.1) {
        (Some(_), Some(_)) => {
            let fix = format!("is given beside {}; give one of them", text.0);
            problems.push(Problem::new(base64.0, "", fix));
            None
        }
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, Some(encoded)) => match BASE64.decode(encoded.as_bytes()) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                problems.push(Problem::new(
                    base64.0,
                    encoded,
                    format!("is not base64: {error}"),
                ));
                None
            }
        },
        (None, None) => None,
    }
}
