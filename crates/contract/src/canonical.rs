//! Canonical JSON (RFC 8785) and the digest over it. Two honest machines write the same value with the same bytes, or not at all:
//! an integer that a double would change is refused, because its digest would also be another number's.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::strict_json::integer_is_exact;

/// Why a value has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    #[error("the number {number} cannot be held exactly by a double; write it as a string")]
    NumberNotExact { number: String },
    #[error("not JSON: {message}")]
    NotJson { message: String },
}

/// A SHA-256 digest, spelled `sha256:<64 hex digits>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest; write `sha256:` and 64 lowercase hexadecimal digits")]
pub struct BadDigest {
    pub text: String,
}

/// The bytes that RFC 8785 prescribes for this value.
pub fn to_bytes(value: &Value) -> Result<Vec<u8>, NotCanonical> {
    check_numbers(value)?;
    write(value)
}

/// SHA-256 over the canonical bytes.
pub fn digest(value: &Value) -> Result<Digest, NotCanonical> {
    Ok(Digest::of(&to_bytes(value)?))
}

fn check_numbers(value: &Value) -> Result<(), NotCanonical> {
    match value {
        Value::Number(number) if !number.is_f64() && !integer_is_exact(&number.to_string()) => {
            Err(NotCanonical::NumberNotExact {
                number: number.to_string(),
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Array(items) => items.iter().try_for_each(check_numbers),
        Value::Object(map) => map.values().try_for_each(check_numbers),
    }
}

fn write(value: &impl Serialize) -> Result<Vec<u8>, NotCanonical> {
    serde_json_canonicalizer::to_vec(value).map_err(|error| NotCanonical::NotJson {
        message: error.to_string(),
    })
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 lowercase hexadecimal digits, without the prefix.
    pub fn hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }
}

const PREFIX: &str = "sha256:";

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        text.strip_prefix(PREFIX)
            .and_then(|hex| data_encoding::HEXLOWER.decode(hex.as_bytes()).ok())
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| BadDigest {
                text: crate::problem::shorten(text),
            })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict_json;
    use proptest::prelude::*;
    use serde_json::json;

    fn canonical(text: &str) -> String {
        let value = strict_json::parse(text.as_bytes()).unwrap();
        String::from_utf8(to_bytes(&value).unwrap()).unwrap()
    }

    /// RFC 8785, sections 3.2.2 (input), 3.2.3 (sorted) and 3.2.4 (bytes).
    #[test]
    fn the_rfcs_example_object() {
        let input = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50,
                        2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = concat!(
            r#"{"literals":[null,true,false],"#,
            r#""numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canonical(input), expected);
        let bytes = data_encoding::HEXLOWER.decode(
            b"7b226c69746572616c73223a5b6e756c6c2c747275652c66616c73655d2c226e\
              756d62657273223a5b3333333333333333332e333333333333332c31652b33302c\
              342e352c302e3030322c31652d32375d2c22737472696e67223a22e282ac245c75\
              303030665c6e4127425c225c5c5c5c5c222f227d",
        );
        assert_eq!(canonical(input).into_bytes(), bytes.unwrap());
    }

    /// RFC 8785, section 3.2.3: keys sort by UTF-16 code units, not by code points or bytes.
    #[test]
    fn the_rfcs_sorting_example() {
        let input = r#"{
            "\u20ac": "Euro Sign",
            "\r": "Carriage Return",
            "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "1": "One",
            "\ud83d\ude00": "Emoji: Grinning Face",
            "\u0080": "Control",
            "\u00f6": "Latin Small Letter O With Diaeresis"
        }"#;
        let expected = concat!(
            r#"{"\r":"Carriage Return","#,
            r#""1":"One","#,
            "\"\u{80}\":\"Control\",",
            r#""ö":"Latin Small Letter O With Diaeresis","#,
            r#""€":"Euro Sign","#,
            r#""😀":"Emoji: Grinning Face","#,
            "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}"
        );
        assert_eq!(canonical(input), expected);
    }

    /// RFC 8785, appendix B.
    #[test]
    fn the_rfcs_number_table() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let number = f64::from_bits(bits);
            assert_eq!(write(&number).unwrap(), expected.as_bytes(), "{bits:016x}");
            assert_eq!(
                to_bytes(&json!(number)).unwrap(),
                expected.as_bytes(),
                "{bits:016x}"
            );
            // And it reads back as the same number.
            assert_eq!(canonical(expected), expected);
        }
        for bits in [
            0x7fff_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0xfff0_0000_0000_0000,
        ] {
            assert!(matches!(
                write(&f64::from_bits(bits)),
                Err(NotCanonical::NotJson { .. })
            ));
        }
    }

    #[test]
    fn an_integer_that_a_double_changes_has_no_digest() {
        let number = "9007199254740993".to_owned();
        let value = json!({"a": [9_007_199_254_740_993_u64]});
        assert_eq!(digest(&value), Err(NotCanonical::NumberNotExact { number }));
        assert!(digest(&json!(u64::MAX)).is_err());
        assert!(digest(&json!(i64::MIN)).is_err());
        assert!(digest(&json!(9_007_199_254_740_992_u64)).is_ok());
    }

    #[test]
    fn digests_are_spelled_and_read() {
        let empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(digest(&json!({})).unwrap().to_string(), empty);
        assert_eq!(
            empty.parse::<Digest>(),
            digest(&json!({})).map_err(|_| unreachable!())
        );
        let hex = &empty[7..];
        for text in [
            "",
            hex,
            "sha256:",
            "sha1:00",
            &empty[..70],
            &empty.to_uppercase(),
            &format!("{empty}0"),
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_is_its_own_canonical_text(number: f64, key: String, text: String, flag: bool) {
            let value = json!({&key: [number, text, flag], "n": {"k": number}});
            let once = to_bytes(&value).unwrap();
            let again = to_bytes(&strict_json::parse(&once).unwrap()).unwrap();
            prop_assert_eq!(once, again);
        }

        #[test]
        fn the_order_of_keys_does_not_change_the_digest(keys in prop::collection::btree_set(".*", 0..8)) {
            let forward: Value = Value::Object(keys.iter().map(|k| (k.clone(), json!(k))).collect());
            let backward: Value = Value::Object(keys.iter().rev().map(|k| (k.clone(), json!(k))).collect());
            prop_assert_eq!(digest(&forward), digest(&backward));
        }
    }
}
