//! A signed transaction as it comes: read strictly, and who signed it. The same bytes always mean the same, and nothing else does.

use alloy_primitives::{Address, B256, Bytes, TxKind, U256, keccak256};
use alloy_rlp::{Decodable, Header};
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};

use crate::transaction::{TYPE, Transaction};

/// More than the largest contract needs.
const LONGEST: usize = 128 << 10;

#[derive(Debug, Clone)]
pub(super) struct Envelope {
    pub(super) transaction: Transaction,
    pub(super) from: Address,
    pub(super) hash: B256,
    pub(super) signature: (U256, U256, bool),
}

impl Envelope {
    /// Says in words what is wrong with it.
    pub(super) fn read(raw: &[u8]) -> Result<Self, String> {
        if raw.len() > LONGEST {
            return Err(format!("the transaction has more than {LONGEST} bytes"));
        }
        let Some((&TYPE, fields)) = raw.split_first() else {
            return Err("only transactions of type 2 (EIP-1559) are taken".to_owned());
        };
        let malformed = |error: alloy_rlp::Error| format!("the transaction is malformed: {error}");
        let (transaction, signature) = decoded(fields).map_err(malformed)?;
        // One that could be written in two ways would have two names.
        if transaction.with_signature(&signature) != raw {
            return Err("the transaction is malformed: it is not written as it has to be".into());
        }
        Ok(Self {
            from: signer(transaction.hash_to_sign(), &signature)?,
            hash: keccak256(raw),
            transaction,
            signature,
        })
    }
}

type Read = (Transaction, (U256, U256, bool));

fn decoded(mut fields: &[u8]) -> Result<Read, alloy_rlp::Error> {
    let rest = &mut fields;
    let header = Header::decode(rest)?;
    if !header.list || header.payload_length != rest.len() {
        return Err(alloy_rlp::Error::UnexpectedLength);
    }
    let chain = u64::decode(rest)?;
    let nonce = u64::decode(rest)?;
    let priority_fee = u128::decode(rest)?;
    let max_fee = u128::decode(rest)?;
    let gas = u64::decode(rest)?;
    let to = match TxKind::decode(rest)? {
        TxKind::Create => None,
        TxKind::Call(to) => Some(to),
    };
    let value = U256::decode(rest)?;
    let data = Bytes::decode(rest)?;
    let announced = Header::decode(rest)?;
    if !announced.list || announced.payload_length != 0 {
        return Err(alloy_rlp::Error::Custom(
            "a list of what it reads is not taken",
        ));
    }
    let is_odd = bool::decode(rest)?;
    let r = U256::decode(rest)?;
    let s = U256::decode(rest)?;
    let transaction = Transaction {
        chain,
        nonce,
        priority_fee,
        max_fee,
        gas,
        to,
        value,
        data,
    };
    Ok((transaction, (r, s, is_odd)))
}

fn signer(hash: B256, (r, s, is_odd): &(U256, U256, bool)) -> Result<Address, String> {
    let wrong = || "the transaction's signature is not valid".to_owned();
    let signature = Signature::from_scalars(r.to_be_bytes::<32>(), s.to_be_bytes::<32>());
    let signature = signature.map_err(|_| wrong())?;
    // Of the two halves of a signature's range only the lower is one (EIP-2).
    if signature.normalize_s().is_some() {
        return Err(wrong());
    }
    let recovery = RecoveryId::new(*is_odd, false);
    let key = VerifyingKey::recover_from_prehash(hash.as_slice(), &signature, recovery);
    let point = key.map_err(|_| wrong())?.to_encoded_point(false);
    let bytes = point.as_bytes().get(1..).unwrap_or_default();
    Ok(Address::from_word(keccak256(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn example() -> Transaction {
        Transaction {
            chain: 31337,
            nonce: 0,
            priority_fee: 1,
            max_fee: 300,
            gas: 21_000,
            to: Some(Address::repeat_byte(7)),
            value: U256::from(5),
            data: Bytes::from_static(&[1, 2, 3]),
        }
    }

    fn key() -> Key {
        Key::from_hex(&"12".repeat(32), "a test").unwrap()
    }

    #[test]
    fn what_was_signed_is_read_back_with_who_signed_it() {
        for to in [Some(Address::repeat_byte(7)), None] {
            let transaction = Transaction { to, ..example() };
            let signed = transaction.sign(&key()).unwrap();
            let read = Envelope::read(&signed.raw).unwrap();
            assert_eq!(read.transaction, transaction);
            assert_eq!((read.from, read.hash), (key().address(), signed.hash));
        }
    }

    #[test]
    fn no_other_bytes_pass_for_a_transaction_of_somebody() {
        let signed = example().sign(&key()).unwrap();
        let (r, s, is_odd) = Envelope::read(&signed.raw).unwrap().signature;
        // The order of the curve: the mirror image of a signature is one too, and would be a second name.
        let order = U256::from_be_slice(
            &alloy_primitives::hex::decode(
                "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
            )
            .unwrap(),
        );
        let mirrored = example().with_signature(&(r, order - s, !is_odd));
        let mut longer = signed.raw.clone();
        longer.push(0);
        let mut other_type = signed.raw.clone();
        other_type[0] = 1;
        for bad in [
            mirrored,
            example().with_signature(&(U256::ZERO, s, is_odd)),
            example().with_signature(&(order, s, is_odd)),
            longer,
            other_type,
            signed.raw[..signed.raw.len() - 1].to_vec(),
            vec![2],
            Vec::new(),
            vec![2; LONGEST + 1],
        ] {
            let refused = Envelope::read(&bad).unwrap_err();
            assert!(refused.contains("transaction"), "{refused}");
        }
        // Every flipped bit is refused, or is the signature of somebody else.
        for place in 0..signed.raw.len() * 8 {
            let mut flipped = signed.raw.clone();
            flipped[place / 8] ^= 1 << (place % 8);
            if let Ok(read) = Envelope::read(&flipped) {
                assert_ne!(read.from, key().address(), "bit {place}");
            }
        }
    }
}
