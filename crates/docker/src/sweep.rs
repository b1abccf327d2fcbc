//! Removing what a crash left: containers and volumes of ours whose owner is gone, or whose time is long over. Nothing without our label is touched.

use std::collections::HashMap;

use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveVolumeOptionsBuilder,
};

use crate::container::{self, MANAGED, OWNER, RUN, UNTIL};
use crate::owner::{Owner, Presence};

/// Removes orphans. What cannot be removed now is tried again at the next start.
pub(crate) async fn sweep_best_effort(client: &Docker, here: &Owner, now: u64) {
    let ours = HashMap::from([("label", vec![format!("{MANAGED}=true")])]);
    let listing = ListContainersOptionsBuilder::default()
        .all(true)
        .filters(&ours)
        .build();
    let containers = client.list_containers(Some(listing)).await;
    for container in containers.unwrap_or_default() {
        let labels = container.labels.unwrap_or_default();
        let names = container.names.unwrap_or_default();
        let is_orphan = is_made_by_us(&names, &labels) && is_orphan(&labels, here, now);
        if let (Some(id), true) = (container.id, is_orphan) {
            let how = RemoveContainerOptionsBuilder::default()
                .force(true)
                .v(true)
                .build();
            let _ = client.remove_container(&id, Some(how)).await;
        }
    }
    // A volume goes with its container; one alone is what is left of a container that somebody else removed.
    let listing = ListVolumesOptionsBuilder::default().filters(&ours).build();
    let volumes = client.list_volumes(Some(listing)).await;
    let volumes = volumes.ok().and_then(|found| found.volumes);
    for volume in volumes.unwrap_or_default() {
        if is_orphan(&volume.labels, here, now) {
            let how = RemoveVolumeOptionsBuilder::default().build();
            let _ = client.remove_volume(&volume.name, Some(how)).await;
        }
    }
}

/// For clocks that are not ours: they may be wrong, or in another zone.
const SLACK_FOR_STRANGERS: u64 = 24 * 60 * 60;

/// Containers have the labels of their images too, so that a label alone proves nothing: somebody else's image must not have somebody else's container removed. No image gives a container its name.
fn is_made_by_us(names: &[String], labels: &HashMap<String, String>) -> bool {
    let Some(run) = labels.get(RUN) else {
        return false;
    };
    let own = container::name(run);
    names.iter().any(|name| name.trim_start_matches('/') == own)
}

fn is_orphan(labels: &HashMap<String, String>, here: &Owner, now: u64) -> bool {
    let owner = labels.get(OWNER).and_then(|label| Owner::from_label(label));
    let is_of_here = |owner: &Owner| owner.is_of_the_machine_of(here);
    let slack = match owner.as_ref().is_some_and(is_of_here) {
        true => 0,
        false => SLACK_FOR_STRANGERS,
    };
    let until = labels.get(UNTIL).and_then(|until| until.parse().ok());
    if until.is_some_and(|until: u64| until.saturating_add(slack) < now) {
        return true;
    }
    owner.is_some_and(|owner| owner.presence(here) == Presence::Gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_our_labels_and_another_name_is_somebody_elses() {
        let labels = HashMap::from([(RUN.to_owned(), "7".to_owned())]);
        let names = |name: &str| vec![name.to_owned()];
        assert!(is_made_by_us(&names("/cofferdam-7"), &labels));
        assert!(is_made_by_us(&names("cofferdam-7"), &labels));
        assert!(!is_made_by_us(&names("/database"), &labels));
        assert!(!is_made_by_us(&names("/cofferdam-8"), &labels));
        assert!(!is_made_by_us(&names("/cofferdam-7"), &HashMap::new()));
    }

    #[test]
    fn whose_time_is_over_is_an_orphan_and_a_strangers_clock_may_be_wrong_by_hours() {
        let here = Owner::current();
        let labels = |until: &str| {
            HashMap::from([
                (OWNER.to_owned(), here.to_label()),
                (UNTIL.to_owned(), until.to_owned()),
            ])
        };
        assert!(is_orphan(&labels("99"), &here, 100));
        assert!(!is_orphan(&labels("100"), &here, 100));
        assert!(!is_orphan(&labels("soon"), &here, 100));
        assert!(!is_orphan(&HashMap::new(), &here, 100));

        let stranger = HashMap::from([
            (OWNER.to_owned(), "m/b/1/1/1".to_owned()),
            (UNTIL.to_owned(), "99".to_owned()),
        ]);
        let nobody = HashMap::from([(UNTIL.to_owned(), "99".to_owned())]);
        for labels in [stranger, nobody] {
            assert!(!is_orphan(&labels, &here, 100));
            assert!(!is_orphan(&labels, &here, 99 + SLACK_FOR_STRANGERS));
            assert!(is_orphan(&labels, &here, 100 + SLACK_FOR_STRANGERS));
        }
    }
}
