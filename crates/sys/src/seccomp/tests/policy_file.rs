//! The policy file, read naively: without the table or the emitter.

use super::*;

pub(super) struct Policy {
    pub(super) calls: BTreeMap<String, Decided>,
    variants: Vec<(Variant, Table)>,
}

pub(super) enum Decided {
    Allow,
    Deny {
        errno: u32,
        quiet: bool,
    },
    Check {
        errno: u32,
        quiet: bool,
        table: Table,
    },
}

pub(super) fn policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(read_policy)
}

pub(super) fn read_policy() -> Policy {
    let toml: Table = include_str!("../../../../../policies/native.toml")
        .parse()
        .unwrap();
    let mut calls = BTreeMap::new();
    let mut add = |names: Vec<String>, decided: &dyn Fn() -> Decided| {
        for name in names {
            assert!(
                calls.insert(name.clone(), decided()).is_none(),
                "{name} twice"
            );
        }
    };
    for group in groups(&toml, "allow") {
        add(names(group), &|| Decided::Allow);
    }
    for group in groups(&toml, "deny") {
        add(names(group), &|| Decided::Deny {
            errno: refusal(group),
            quiet: quiet(group),
        });
    }
    for group in groups(&toml, "check") {
        add(names(group), &|| Decided::Check {
            errno: refusal(group),
            quiet: quiet(group),
            table: group.clone(),
        });
    }
    let variants = groups(&toml, "variant").map(|group| {
        let variant = match group["name"].as_str().unwrap() {
            "no-shm" => Variant::NoShm,
            "pin-cpus" => Variant::PinCpus,
            "fixed" => Variant::Fixed,
            other => panic!("{other}"),
        };
        (variant, group.clone())
    });
    let variants = variants.collect();
    Policy { calls, variants }
}

pub(super) fn groups<'t>(toml: &'t Table, key: &str) -> impl Iterator<Item = &'t Table> {
    toml[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group.as_table().unwrap())
}

pub(super) fn names(group: &Table) -> Vec<String> {
    match group.get("names") {
        Some(names) => strings(names),
        None => vec![group["name"].as_str().unwrap().to_owned()],
    }
}

pub(super) fn strings(value: &toml::Value) -> Vec<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap().to_owned())
        .collect()
}

pub(super) fn quiet(group: &Table) -> bool {
    group.get("quiet").is_some_and(|q| q.as_bool().unwrap())
}

pub(super) fn refusal(group: &Table) -> u32 {
    errno(match group.get("errno").map(|e| e.as_str().unwrap()) {
        None | Some("EPERM") => libc::EPERM,
        Some("ENOSYS") => libc::ENOSYS,
        Some("EINVAL") => libc::EINVAL,
        Some("EPROTONOSUPPORT") => libc::EPROTONOSUPPORT,
        Some("EAFNOSUPPORT") => libc::EAFNOSUPPORT,
        Some(other) => panic!("{other}"),
    })
}

/// What the first matching rule of a check says.
pub(super) fn check(table: &Table, args: [u64; 6]) -> &str {
    for rule in groups(table, "rule") {
        let holds = groups(rule, "when").all(|test| {
            let arg = args[usize::try_from(test["arg"].as_integer().unwrap()).unwrap()];
            let bits = |key: &str| -> Option<Vec<u64>> {
                let table = test.get(key)?.as_table().unwrap();
                Some(
                    table
                        .values()
                        .map(|v| v.as_integer().unwrap().cast_unsigned())
                        .collect(),
                )
            };
            let mask = bits("mask").map_or(0xffff_ffff, |bits| {
                bits.iter().fold(0, |all, bit| all | bit)
            });
            bits("values").unwrap().contains(&(arg & mask))
        });
        if holds {
            return rule["then"].as_str().unwrap();
        }
    }
    table["otherwise"].as_str().unwrap()
}

impl Policy {
    pub(super) fn expected(&self, call: Call, variants: Variants, denied: Denied) -> u32 {
        if call.arch != X86_64 {
            return KILL;
        }
        let refused = |errno: u32, quiet: bool| match denied {
            Denied::Notify if !quiet => NOTIFY,
            Denied::Notify | Denied::Errno => errno,
        };
        let Some(name) = name_of(call.number) else {
            return errno(libc::ENOSYS);
        };
        for (variant, group) in &self.variants {
            if !variants.contains(*variant) || !strings(&group["deny"]).iter().any(|n| n == name) {
                continue;
            }
            let verdict = match group.get("rule") {
                Some(_) => check(group, call.args),
                None => "deny",
            };
            return match verdict {
                "allow" => ALLOW,
                "deny" => refused(refusal(group), false),
                other => panic!("{other}"),
            };
        }
        match &self.calls[name] {
            Decided::Allow => ALLOW,
            Decided::Deny { errno, quiet } => refused(*errno, *quiet),
            Decided::Check {
                errno,
                quiet,
                table,
            } => match check(table, call.args) {
                "allow" => ALLOW,
                "deny" => refused(*errno, *quiet),
                "deny-quietly" => refused(*errno, true),
                other => panic!("{other}"),
            },
        }
    }
}
