// SPDX-License-Identifier: Apache-2.0
//! `coracle lab report`

use std::path::{Path, PathBuf};

use clap::Args;
use coracle_lab::{record, report};

use crate::error::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Results: their folders, files, or a folder that holds several
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Where report.html and the other files go [default: the result's folder; of several, the folder that holds them]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Writes a report on results, and says where.
pub(super) fn report(args: &ReportArgs) -> Result<u8, Failure> {
    let mut folders = Vec::new();
    for path in &args.results {
        let files = record::find(path).map_err(Failure::new)?;
        folders.extend(files.iter().map(|file| folder_of(file)));
    }
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => together(&folders)?,
    };
    let written = report::write(&args.results, &folder).map_err(Failure::new)?;
    for why in &written.left_out {
        eprintln!("left out: {why}");
    }
    output::line(&written.page.display().to_string());
    Ok(0)
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The one folder, or the one that holds all.
fn together(folders: &[PathBuf]) -> Result<PathBuf, Failure> {
    let holders: Vec<PathBuf> = match folders {
        [one] => return Ok(one.clone()),
        _ => folders.iter().map(|folder| folder_of(folder)).collect(),
    };
    match holders.split_first() {
        Some((first, rest)) if rest.iter().all(|holder| holder == first) => Ok(first.clone()),
        _ => Err(Failure::new(
            "the results lie in different folders: say with --output DIR where the report goes",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{PathBuf, folder_of, together};

    #[test]
    fn a_report_goes_where_the_results_are() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(together(&paths(&["r/a"])).ok(), Some(PathBuf::from("r/a")));
        assert_eq!(
            together(&paths(&["r/a", "r/b"])).ok(),
            Some(PathBuf::from("r"))
        );
        assert_eq!(together(&paths(&["a", "b"])).ok(), Some(PathBuf::from(".")));
        assert!(together(&paths(&["r/a", "s/b"])).is_err());
        assert_eq!(
            folder_of(&PathBuf::from("result.jsonl")),
            PathBuf::from(".")
        );
    }
}
