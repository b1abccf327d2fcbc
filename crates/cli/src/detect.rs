//! `cofferdam detect`: what lies in a directory, as a table or as JSON. Runs nothing.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_project::{Bounds, Detection, Project, detect as search};

use crate::arguments::project::DetectArgs;
use crate::failure::{self, Failure};
use crate::terminal::colour::{Paint, When};
use crate::terminal::output::Document;
use crate::terminal::size::Target;
use crate::terminal::table::{Align, Cell, Column, Room, Table};
use crate::terminal::text::safe;
use crate::terminal::waiting::Waiting;

const SCHEMA: &str = "cofferdam.detect/1";

pub(crate) fn detect(args: &DetectArgs) -> Result<ExitCode, Failure> {
    let bounds = Bounds {
        depth: args.depth,
        ..Bounds::default()
    };
    let waiting = Waiting::on("looking at files");
    let found = search(&args.path, &bounds).map_err(|error| {
        let what = format!("cannot search `{}`", args.path.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })?;
    drop(waiting);
    if args.json {
        let document = Document {
            schema: SCHEMA,
            content: &found,
        };
        let mut text = serde_json::to_string(&document)
            .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
        text.push('\n');
        failure::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    tell(&found)?;
    Ok(ExitCode::SUCCESS)
}

fn tell(found: &Detection) -> Result<(), Failure> {
    for note in &found.notes {
        crate::terminal::output::note(&format!("cofferdam: {}", safe(note)));
    }
    if found.projects.is_empty() {
        return failure::print("no projects here\n");
    }
    let column = |title, room| Column {
        title,
        align: Align::Left,
        room,
    };
    let mut table = Table::new(&[
        column("MANIFEST", Room::Fixed),
        column("KIND", Room::Fixed),
        column("NAME", Room::Drops(0)),
        column("MANAGER", Room::Drops(1)),
        column("TESTS", Room::Rest),
    ]);
    for project in &found.projects {
        table.row(row(project).into_iter().map(Cell::new).collect());
    }
    let target = Target::of_stdout();
    let paint = Paint::of(When::Auto, target);
    failure::print(&table.render(target.columns(), paint))
}

fn row(project: &Project) -> [String; 5] {
    let kind = format!("{} {}", project.ecosystem.as_str(), project.kind.as_str());
    let tests: Vec<&str> = project
        .frameworks
        .iter()
        .map(|framework| framework.as_str())
        .collect();
    [
        safe(&project.manifest),
        kind,
        safe(project.name.as_deref().unwrap_or("-")),
        project
            .package_manager
            .map_or("-", |manager| manager.as_str())
            .to_owned(),
        if tests.is_empty() {
            "-".to_owned()
        } else {
            tests.join(", ")
        },
    ]
}
