//! Files that come beside a request, as `multipart/form-data`: the part `request` is the JSON, each part `file` a file, each part `executable` a program, and the part `project` the archive of a project. Their names are checked as
//! those of files inside the JSON are, before anything is written.

use std::convert::Infallible;

use axum::body::Bytes;
use cofferdam_contract::codes::ErrorCode;
use multer::{Field, Multipart};
use sha2::{Digest as _, Sha256};

use crate::body;
use crate::fault::Fault;
use crate::submission::RunRequest;
use crate::workspace::{Executable, MAX_FILES, PlacedFile};

/// A request with its files, and what a repetition of it is known by: the text between the parts is another each time.
pub(crate) struct Uploaded {
    pub(crate) request: RunRequest,
    pub(crate) identity: Vec<u8>,
}

/// Reads the parts of a body that is whole.
pub(crate) async fn read(bytes: Bytes, boundary: String) -> Result<Uploaded, Fault> {
    let once = futures_util::stream::once(async move { Ok::<_, Infallible>(bytes) });
    let mut parts = Multipart::new(once, boundary);
    let mut request: Option<RunRequest> = None;
    let mut files = Vec::new();
    let mut archive = None;
    let mut identity = Sha256::new();
    while let Some(part) = parts.next_field().await.map_err(bad_parts)? {
        match part.name().unwrap_or_default() {
            "request" if request.is_none() => {
                let text = part.bytes().await.map_err(bad_parts)?;
                note(&mut identity, &[b"request", &text]);
                request = Some(body::parsed(&text).await?);
            }
            "request" => return Err(Fault::invalid("request", "", "is there twice; send one")),
            "project" if archive.is_none() => {
                let bytes = part.bytes().await.map_err(bad_parts)?;
                note(&mut identity, &[b"project", &bytes]);
                archive = Some(bytes.to_vec());
            }
            "project" => return Err(Fault::invalid("project", "", "is there twice; send one")),
            "file" => files.push(file(part, Executable::No, &mut identity).await?),
            "executable" => files.push(file(part, Executable::Yes, &mut identity).await?),
            other => {
                let shown: String = other.chars().take(100).collect();
                let fix = "is no part that is known; name it request, file, executable or project";
                return Err(Fault::invalid("part", shown, fix));
            }
        }
        if files.len() > MAX_FILES {
            let fix = format!("are too many; send at most {MAX_FILES}");
            return Err(Fault::invalid("file", files.len(), &fix));
        }
    }
    let missing = || Fault::invalid("request", "", "is missing; send the request as this part");
    let mut request = request.ok_or_else(missing)?;
    request.uploads = files;
    request.archive = archive;
    Ok(Uploaded {
        request,
        identity: identity.finalize().to_vec(),
    })
}

async fn file(
    part: Field<'_>,
    executable: Executable,
    identity: &mut Sha256,
) -> Result<PlacedFile, Fault> {
    let Some(path) = part.file_name().map(str::to_owned) else {
        let fix = "has no filename; give the path in the workspace as its filename";
        return Err(Fault::invalid("file", "", fix));
    };
    let content = part.bytes().await.map_err(bad_parts)?;
    let kind: &[u8] = match executable {
        Executable::Yes => b"executable",
        Executable::No => b"file",
    };
    note(identity, &[kind, path.as_bytes(), &content]);
    Ok(PlacedFile {
        path,
        content: content.to_vec(),
        executable,
    })
}

/// With the lengths, so that nothing of one can be taken for another.
fn note(identity: &mut Sha256, fields: &[&[u8]]) {
    for field in fields {
        identity.update(u64::try_from(field.len()).unwrap_or(0).to_le_bytes());
        identity.update(field);
    }
}

fn bad_parts(error: multer::Error) -> Fault {
    let detail = format!("the body is not whole multipart/form-data: {error}");
    Fault::coded(ErrorCode::InputInvalid, detail)
}
