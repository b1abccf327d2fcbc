//! A transaction with a fee as EIP-1559 has it, signed here. The node that it is given to learns no key.

use alloy_primitives::{Address, B256, Bytes, TxKind, U256, hex, keccak256};
use alloy_rlp::{BufMut, Encodable as _, Header};

use crate::error::ChainError;
use crate::key::Key;

/// The kind of transaction that this is.
pub(crate) const TYPE: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub chain: u64,
    pub nonce: u64,
    pub priority_fee: u128,
    pub max_fee: u128,
    pub gas: u64,
    /// `None` makes a contract.
    pub to: Option<Address>,
    pub value: U256,
    pub data: Bytes,
}

/// What can be sent, and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    pub raw: Vec<u8>,
    pub hash: B256,
}

impl Signed {
    pub fn raw_hex(&self) -> String {
        hex::encode_prefixed(&self.raw)
    }
}

impl Transaction {
    pub fn sign(&self, key: &Key) -> Result<Signed, ChainError> {
        let signature = key.sign(self.hash_to_sign())?;
        let raw = self.with_signature(&signature);
        Ok(Signed {
            hash: keccak256(&raw),
            raw,
        })
    }

    pub(crate) fn hash_to_sign(&self) -> B256 {
        let mut fields = Vec::new();
        self.write_fields(&mut fields);
        keccak256(listed(&fields))
    }

    /// As it is sent. The signature: r, s and the parity of y.
    pub(crate) fn with_signature(&self, (r, s, is_odd): &(U256, U256, bool)) -> Vec<u8> {
        let mut fields = Vec::new();
        self.write_fields(&mut fields);
        is_odd.encode(&mut fields);
        r.encode(&mut fields);
        s.encode(&mut fields);
        listed(&fields)
    }

    fn write_fields(&self, out: &mut dyn BufMut) {
        self.chain.encode(out);
        self.nonce.encode(out);
        self.priority_fee.encode(out);
        self.max_fee.encode(out);
        self.gas.encode(out);
        self.to.map_or(TxKind::Create, TxKind::Call).encode(out);
        self.value.encode(out);
        self.data.encode(out);
        // Nothing is announced to be read.
        Header {
            list: true,
            payload_length: 0,
        }
        .encode(out);
    }
}

fn listed(fields: &[u8]) -> Vec<u8> {
    let mut bytes = vec![TYPE];
    Header {
        list: true,
        payload_length: fields.len(),
    }
    .encode(&mut bytes);
    bytes.extend_from_slice(fields);
    bytes
}
