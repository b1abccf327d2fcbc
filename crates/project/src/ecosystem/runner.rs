//! The interface that every ecosystem has, and the choice between them.

use crate::action::{
    Action, Coverage, FailFast, Lack, Options, Places, Reach, Step, Trust, Unavailable,
};
use crate::detect::Tree;
use crate::ecosystem::{dotnet, go, java, node, python, rust};
use crate::model::{Detection, Ecosystem, Framework, Project};

/// What an ecosystem knows.
pub(super) trait Runner {
    /// Its projects in a tree.
    fn find(&self, tree: &mut Tree<'_>) -> Vec<Project>;

    /// What does this with a project. An empty list: there is nothing to do. An error says what is missing, and what to do about it.
    fn steps(&self, ask: &Ask<'_>) -> Result<Vec<Step>, String>;

    /// The programs without which this cannot be done.
    fn programs(&self, project: &Project, action: Action) -> Vec<&'static str>;

    /// What of a project is executed when its tool only fetches; `None` where nothing is.
    fn executes(&self, _: &Project) -> Option<&'static str> {
        None
    }
}

/// One question to a runner.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) action: Action,
    pub(super) project: &'a Project,
    /// The whole tree: what members are is written in their own manifests.
    pub(super) detection: &'a Detection,
    pub(super) options: &'a Options,
    pub(super) places: &'a Places,
}

impl Ask<'_> {
    /// The project's directory, as the step sees it.
    pub(super) fn dir(&self) -> String {
        self.places.dir(&self.project.path)
    }
}

const fn runner(ecosystem: Ecosystem) -> &'static dyn Runner {
    match ecosystem {
        Ecosystem::Dotnet => &dotnet::Dotnet,
        Ecosystem::Node => &node::Node,
        Ecosystem::Python => &python::Python,
        Ecosystem::Rust => &rust::Rust,
        Ecosystem::Go => &go::Go,
        Ecosystem::Java => &java::Java,
    }
}

pub(crate) fn find(tree: &mut Tree<'_>, at_most: usize) -> Vec<Project> {
    let mut projects = Vec::new();
    for ecosystem in Ecosystem::ALL {
        projects.extend(runner(ecosystem).find(tree));
    }
    if projects.len() > at_most {
        tree.note(format!(
            "only the first {at_most} projects are shown; search a smaller part"
        ));
        projects.truncate(at_most);
    }
    projects
}

/// The commands that do this with a project.
pub fn steps(
    action: Action,
    project: &Project,
    detection: &Detection,
    options: &Options,
    places: &Places,
) -> Result<Vec<Step>, Unavailable> {
    let ask = Ask {
        action,
        project,
        detection,
        options,
        places,
    };
    let cannot = match action {
        Action::Test => project
            .frameworks
            .first()
            .and_then(|first| cannot(*first, options)),
        Action::Restore => distrusted(project, options),
        Action::Build | Action::Lint | Action::Format | Action::Run => None,
    };
    let (kind, steps) = match cannot {
        Some(why) => (Lack::NotSo, Err(why)),
        None => {
            let kind = match action {
                Action::Test => Lack::Nothing,
                _ => Lack::NotSo,
            };
            (kind, runner(project.ecosystem).steps(&ask))
        }
    };
    steps.map_err(|why| Unavailable {
        kind,
        manifest: project.manifest.clone(),
        why,
    })
}

/// Without walls nothing of a project is executed, unless the caller says that it is trusted.
fn distrusted(project: &Project, options: &Options) -> Option<String> {
    if options.reach != Reach::Host || options.trust == Trust::Yes {
        return None;
    }
    let what = runner(project.ecosystem).executes(project)?;
    Some(format!(
        "fetching outside of the sandbox would execute parts of the project with your rights ({what}); add --trust-project if you trust all of it, or leave --backend host out and use what is in the cache"
    ))
}

/// What was asked of a test runner that has no word for it. Better refused than left out in silence.
fn cannot(framework: Framework, options: &Options) -> Option<String> {
    let name = framework.as_str();
    if options.fail_fast == FailFast::Yes
        && matches!(framework, Framework::NodeTest | Framework::Vstest)
    {
        return Some(format!(
            "{name} cannot stop at the first failure; leave --fail-fast out"
        ));
    }
    let measures = match framework {
        Framework::Jest
        | Framework::Vitest
        | Framework::Pytest
        | Framework::GoTest
        | Framework::Vstest => true,
        Framework::NodeTest
        | Framework::Mocha
        | Framework::Unittest
        | Framework::CargoTest
        | Framework::Nextest
        | Framework::Surefire => false,
    };
    if options.coverage == Coverage::Yes && !measures {
        return Some(format!(
            "{name} does not measure coverage by itself; leave --coverage out"
        ));
    }
    None
}

/// The programs that must be in view for a project.
pub fn programs(project: &Project, action: Action) -> Vec<&'static str> {
    runner(project.ecosystem).programs(project, action)
}
