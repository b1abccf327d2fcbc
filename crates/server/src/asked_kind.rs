//! What kind of work a request asks for: a command, source code, or an action of a project; and which fields belong to it.

use cofferdam_contract::problem::Problem;

use crate::submission::RunRequest;

/// Exactly one of them, and nothing beside it that has no meaning there.
pub(crate) fn check(request: &RunRequest, problems: &mut Vec<Problem>) {
    if request.project.is_some() {
        return check_beside_project(request, problems);
    }
    let asked = (
        request.command.is_some(),
        request.language.is_some(),
        request.code.is_some(),
    );
    match asked {
        (true, false, false) | (false, true, true) => {}
        (false, false, false) => problems.push(Problem::new(
            "command",
            "",
            "is missing; give a command, or language and code, or project",
        )),
        (true, _, _) => problems.push(Problem::new(
            "command",
            "",
            "is given beside language or code; give one of them",
        )),
        (false, true, false) => problems.push(Problem::new("code", "", "is missing")),
        (false, false, true) => problems.push(Problem::new("language", "", "is missing")),
    }
    if request.cwd.is_some() && request.code.is_some() {
        let fix = "is for a command; code starts in its workspace";
        problems.push(Problem::new("cwd", "", fix));
    }
    if !request.args.is_empty() && request.code.is_none() {
        let fix = "are for a program in `code`; write them into `command`";
        problems.push(Problem::new("args", "", fix));
    }
    if request.event.is_some() && request.code.is_none() {
        let fix = "is for a handler in `code`; use stdin for a command";
        problems.push(Problem::new("event", "", fix));
    }
}

fn check_beside_project(request: &RunRequest, problems: &mut Vec<Problem>) {
    let beside = [
        ("command", request.command.is_some()),
        ("language", request.language.is_some()),
        ("code", request.code.is_some()),
        ("cwd", request.cwd.is_some()),
        ("args", !request.args.is_empty()),
        ("event", request.event.is_some()),
        (
            "stdin",
            request.stdin.is_some() || request.stdin_base64.is_some(),
        ),
        ("pure", request.pure),
        ("deterministic", request.deterministic),
    ];
    for (field, _) in beside.iter().filter(|(_, is_given)| *is_given) {
        let fix = "is given beside project; leave it out";
        problems.push(Problem::new(*field, "", fix));
    }
}
