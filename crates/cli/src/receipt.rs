//! `cofferdam receipt`: one signed line about an answer, made and checked; and the signature of an envelope, which is that line.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::problem::Problem;
use cofferdam_contract::receipt::{BadReceipt, LONGEST, Receipt, Statement};
use cofferdam_contract::seal::Sealed;
use cofferdam_store::DataDir;
use cofferdam_store::bundle::{PublicKey, SigningKey};
use serde::Serialize;

use crate::arguments::Places;
use crate::arguments::keys::{ReceiptArgs, ReceiptVerb, TrustArgs};
use crate::failure::{self, Failure, visible};
use crate::history;
use crate::keys::{self, Signer, Trust};
use crate::seal::document::Document;
use crate::seal::open;
use crate::terminal::output::document;

pub(crate) fn receipt(args: &ReceiptArgs, places: Places) -> Result<ExitCode, Failure> {
    let dir = history::place(places.data_dir);
    match &args.verb {
        ReceiptVerb::Make {
            payload,
            envelope,
            sign,
        } => make(payload, envelope, sign.as_deref(), dir.as_ref()),
        ReceiptVerb::Check {
            receipt,
            payload,
            envelope,
            trust,
            json,
        } => {
            let about = About {
                payload: payload.as_deref(),
                envelope: envelope.as_deref(),
            };
            check(receipt, &about, trust, dir.as_ref(), *json)
        }
    }
}

/// What a receipt must be about.
struct About<'a> {
    payload: Option<&'a Path>,
    envelope: Option<&'a Path>,
}

fn make(
    payload: &Path,
    envelope: &Path,
    key: Option<&Path>,
    dir: Option<&DataDir>,
) -> Result<ExitCode, Failure> {
    let sealed = open(&Document::read(payload)?)?;
    let mut envelope = read_envelope(envelope)?;
    let line = match (key, &envelope.receipt) {
        (Some(key), _) => {
            // Whoever signs vouches for it.
            envelope
                .check(&sealed)
                .map_err(|found| Failure::problems(ErrorCode::EnvelopeInvalid, &found))?;
            sign(&sealed, &mut envelope, &keys::signing(key, dir)?)?
        }
        (None, Some(line)) => {
            let found = signed_by(line, Some((&sealed, &envelope)), &Trust::default()).problems;
            if let Some(problem) = found.first() {
                return Err(Failure::new(
                    ErrorCode::EnvelopeInvalid,
                    problem.to_string(),
                ));
            }
            line.clone()
        }
        (None, None) => {
            let fix = "is not signed; sign it with --sign KEY";
            return Err(Failure::problem("envelope", &envelope.result_id, fix));
        }
    };
    failure::print(&format!("{line}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Signs an envelope and returns its receipt, which is in it from then on.
pub(crate) fn sign(
    sealed: &Sealed,
    envelope: &mut ResultEnvelope,
    key: &SigningKey,
) -> Result<String, Failure> {
    let bad = |bad: BadReceipt| Failure::new(ErrorCode::EnvelopeInvalid, bad.to_string());
    let statement = Statement::new(sealed, envelope, key.public_key().to_string()).map_err(bad)?;
    let signature = key.sign_message(&statement.message().map_err(bad)?);
    let receipt = Receipt {
        statement,
        signature,
    };
    let line = receipt.line().map_err(bad)?;
    envelope.receipt = Some(line.clone());
    Ok(line)
}

/// What was found out about a receipt.
#[derive(Debug, Serialize)]
pub(crate) struct Signed {
    /// Null where the signature does not fit.
    pub(crate) signer: Option<Signer>,
    #[serde(skip)]
    pub(crate) problems: Vec<Problem>,
    #[serde(skip)]
    statement: Option<Statement>,
}

/// Checks a line: the signature, the signer, and whether it is about this answer.
pub(crate) fn signed_by(
    line: &str,
    about: Option<(&Sealed, &ResultEnvelope)>,
    trust: &Trust,
) -> Signed {
    let refused = |problem: Problem| Signed {
        signer: None,
        problems: vec![problem],
        statement: None,
    };
    let receipt = match Receipt::parse(line) {
        Ok(receipt) => receipt,
        Err(bad) => return refused(Problem::new("receipt", line, bad.to_string())),
    };
    let key = receipt.statement.key.parse::<PublicKey>().ok();
    let message = receipt.statement.message().ok();
    let fits = |(key, message): &(PublicKey, Vec<u8>)| key.has_signed(message, &receipt.signature);
    let Some((key, _)) = key.zip(message).filter(fits) else {
        let fix = "has a signature that does not fit what it says: one of them was changed";
        return refused(Problem::new("receipt", &receipt.statement.key, fix));
    };
    let signer = trust.signer(key);
    let mut problems = Vec::new();
    if trust.is_required() && !signer.trusted {
        let fix = "signed it, and is not one of the keys that count";
        problems.push(Problem::new("receipt.key", &signer.key, fix));
    }
    if let Some((sealed, envelope)) = about {
        problems.extend(receipt.statement.problems(sealed, envelope));
    }
    Signed {
        signer: Some(signer),
        problems,
        statement: Some(receipt.statement),
    }
}

#[derive(Debug, Serialize)]
struct Findings<'a> {
    fits: bool,
    problems: &'a [Problem],
    #[serde(flatten)]
    signed: &'a Signed,
    statement: Option<&'a Statement>,
}

fn check(
    receipt: &str,
    about: &About<'_>,
    trust: &TrustArgs,
    dir: Option<&DataDir>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let trust = Trust::new(trust, dir)?;
    let line = match receipt {
        "-" => from_stdin()?,
        line => line.to_owned(),
    };
    let sealed = about.payload.map(Document::read).transpose()?;
    let sealed = sealed.as_ref().map(open).transpose()?;
    let envelope = about.envelope.map(read_envelope).transpose()?;
    let mut signed = signed_by(&line, sealed.as_ref().zip(envelope.as_ref()), &trust);
    if let (Some(sealed), None, Some(statement)) = (&sealed, &envelope, &signed.statement)
        && !statement.is_about(sealed)
    {
        let fix = format!("is another payload than this, which is {}", sealed.digest());
        let problem = Problem::new("receipt.payload", statement.payload, fix);
        signed.problems.push(problem);
    }
    let fits = signed.problems.is_empty();
    failure::print(&if json {
        let findings = Findings {
            fits,
            problems: &signed.problems,
            signed: &signed,
            statement: signed.statement.as_ref(),
        };
        document("cofferdam.receipt-check/1", &findings)?
    } else {
        in_words(&signed)
    })?;
    Ok(match fits {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn in_words(signed: &Signed) -> String {
    let mut text = String::new();
    let mut line = |what: String| {
        text.push_str(&visible(&what));
        text.push('\n');
    };
    for problem in &signed.problems {
        line(problem.to_string());
    }
    if let (Some(signer), Some(said)) = (&signed.signer, &signed.statement) {
        line(format!("signed by {}", name_of(signer)));
        line(format!("payload   {}", said.payload));
        line(format!("output    {}", said.output));
        line(format!("envelope  {}", said.envelope));
        line(format!("ending    {}, {}", said.ending, said.usage));
        line(format!(
            "made by   cofferdam {}, {}",
            said.engine, said.backend
        ));
        line(format!("at        {}", said.completed_at));
    }
    if signed.problems.is_empty() {
        line("fits".to_owned());
    }
    text
}

pub(crate) fn name_of(signer: &Signer) -> String {
    let trusted = match (signer.trusted, &signer.name) {
        (true, _) => "trusted",
        (false, Some(_)) => "not one of the keys that count",
        (false, None) => "not known here",
    };
    match &signer.name {
        Some(name) => format!("{name} ({}, {trusted})", signer.key_id),
        None => format!("{} ({}, {trusted})", signer.key, signer.key_id),
    }
}

fn from_stdin() -> Result<String, Failure> {
    let mut line = String::new();
    let longest = u64::try_from(LONGEST).unwrap_or(u64::MAX).saturating_mul(2);
    let read = std::io::stdin()
        .lock()
        .take(longest)
        .read_to_string(&mut line);
    read.map_err(|error| {
        Failure::io(
            ErrorCode::InputUnreadable,
            "cannot read the receipt",
            &error,
        )
    })?;
    Ok(line)
}

fn read_envelope(path: &Path) -> Result<ResultEnvelope, Failure> {
    let document = Document::read(path)?;
    ResultEnvelope::parse(&document.bytes)
        .map_err(|found| Failure::problems(ErrorCode::EnvelopeInvalid, &found))
}
