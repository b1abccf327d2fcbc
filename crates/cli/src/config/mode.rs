//! Which mode is in force. The later source wins, as everywhere, with one exception: what the machine's own file says cannot be taken back by anybody after it.

use cofferdam_contract::mode::{Mode, Rule};
use cofferdam_contract::problem::Problem;

use super::setting::{MODE, Setting};

/// Of all that was said, in the order of the sources. A mode that contradicts the machine's own is a problem, not a choice.
pub(crate) fn choose(
    of_system: Option<Setting<Mode>>,
    said: impl Iterator<Item = Setting<Mode>>,
    problems: &mut Vec<Problem>,
) -> Setting<Option<Mode>> {
    let mut chosen = None;
    for setting in said {
        match &of_system {
            Some(fixed) if fixed.value != setting.value => {
                let fix = format!(
                    "breaks rule `{}`: {} fixes `{}` for this machine; leave it out",
                    Rule::Mode,
                    fixed.origin,
                    fixed.value
                );
                let field = format!("{}: {}", setting.origin, MODE.yaml);
                problems.push(Problem::new(field, setting.value, fix));
            }
            _ => chosen = Some(setting),
        }
    }
    match chosen {
        Some(Setting { value, origin }) => Setting {
            value: Some(value),
            origin,
        },
        None => Setting::built_in(None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::Origin;
    use super::*;

    fn said(mode: Mode, name: &'static str) -> Setting<Mode> {
        Setting {
            value: mode,
            origin: Origin::Flag { name },
        }
    }

    #[test]
    fn the_later_source_wins_where_the_machine_has_said_nothing() {
        let all = [said(Mode::Docker, "a"), said(Mode::Burst, "b")];
        let mut problems = Vec::new();
        let chosen = choose(None, all.into_iter(), &mut problems);
        assert_eq!(chosen.value, Some(Mode::Burst));
        assert_eq!(chosen.origin, Origin::Flag { name: "b" });
        assert_eq!(problems, []);
        assert_eq!(choose(None, std::iter::empty(), &mut problems).value, None);
    }

    #[test]
    fn what_the_machine_has_fixed_is_not_taken_back() {
        let fixed = said(Mode::AirGapped, "system");
        let mut problems = Vec::new();
        let all = [
            fixed.clone(),
            said(Mode::Docker, "--mode"),
            said(Mode::AirGapped, "x"),
        ];
        let chosen = choose(Some(fixed), all.into_iter(), &mut problems);
        assert_eq!(chosen.value, Some(Mode::AirGapped));
        let found: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "flag --mode: mode: breaks rule `mode`: flag system fixes `air-gapped` for this machine; leave it out (got `docker`)"
            ]
        );
    }
}
