//! Everything that reads a stranger's JSON: drafts, sealed payloads, envelopes. Besides "no panic" it holds the promises that make a digest
//! worth something: what was sealed opens again as the same thing, and what was opened has the digest that it says.
#![no_main]

use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::ids::Entropy;
use cofferdam_contract::seal::{Draft, Sealed};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(draft) = Draft::parse(bytes)
        && let Ok(sealed) = draft.seal(Timestamp::UNIX_EPOCH, Entropy([7; 16]))
    {
        let travelling = serde_json::to_vec(sealed.json()).expect("a sealed payload is JSON");
        let opened = Sealed::open(&travelling).expect("what was sealed opens");
        assert_eq!(opened, sealed);
    }
    if let Ok(sealed) = Sealed::open(bytes) {
        let again = serde_json::to_vec(sealed.json()).expect("a payload is JSON");
        let reopened = Sealed::open(&again).expect("what was opened opens again");
        assert_eq!(reopened.digest(), sealed.digest());
    }
    if let Ok(envelope) = ResultEnvelope::parse(bytes) {
        let sealed = answered();
        let _ = envelope.check(&sealed);
        let again = serde_json::to_vec(&envelope).expect("an envelope is JSON");
        assert_eq!(ResultEnvelope::parse(&again).as_ref(), Ok(&envelope));
    }
});

/// The payload of the seeds, for envelopes to be held against.
fn answered() -> Sealed {
    let draft = include_bytes!("../seeds/payload/draft.json");
    Draft::parse(draft)
        .expect("the seed is a draft")
        .seal(Timestamp::UNIX_EPOCH, Entropy([7; 16]))
        .expect("the seed can be sealed")
}
