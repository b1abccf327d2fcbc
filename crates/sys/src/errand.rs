//! What a sandbox is built for. It comes apart from the [`crate::blueprint::Blueprint`], since a sandbox can stand and wait before anybody knows what will run in it.

use rustix::process::Resource;

use crate::program::Program;

/// A program, and the limits that it carries itself.
#[derive(Debug)]
pub struct Errand {
    pub program: Program,
    /// Set before the program is executed; soft and hard.
    pub rlimits: Vec<(Resource, u64)>,
    /// For a program that builds walls itself: what it leaves behind before it begins.
    pub departure: Option<Departure>,
}

/// Who starts a tool that builds walls: not us. It gets a fresh session keyring, and the descriptors of [`crate::blueprint::Blueprint::trees`] under their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// The user and group that it becomes, without any other group; `None` where we may only be ourselves.
    pub identity: Option<(u32, u32)>,
}

impl Errand {
    /// For a process that does not share our memory: resource limits, directory, how many arguments, the arguments, the environment, with a NUL between each two.
    pub fn written(&self) -> Vec<u8> {
        let limits = self.rlimits.iter();
        let limits: Vec<String> = limits
            .map(|(resource, value)| format!("{}:{value}", *resource as u32))
            .collect();
        let mut parts = vec![limits.join(" ").into_bytes()];
        parts.extend(self.program.parts());
        parts.join(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_is_written_with_a_nul_between_its_parts() {
        let strings =
            |texts: &[&std::ffi::CStr]| texts.iter().map(|&text| text.to_owned()).collect();
        let errand = Errand {
            program: Program::new(
                c"/w".to_owned(),
                Vec::new(),
                strings(&[c"python3", c"main.py"]),
                strings(&[c"A=1"]),
            ),
            rlimits: vec![(Resource::Core, 0), (Resource::Nofile, 64)],
            departure: None,
        };
        let written = errand.written();
        let parts: Vec<&[u8]> = written.split(|&byte| byte == 0).collect();
        let expected: [&[u8]; 6] = [b"4:0 7:64", b"/w", b"2", b"python3", b"main.py", b"A=1"];
        assert_eq!(parts, expected);
    }
}
