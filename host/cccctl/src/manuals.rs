// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Manual pages and completions, as clap knows the command line.
use std::{fs, io, path::Path};

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::args::Args;

/// Writes them below a directory.
pub fn write(directory: &Path) -> io::Result<()> {
    let of = |name: &str| {
        let directory = directory.join(name);
        fs::create_dir_all(&directory)?;
        Ok::<_, io::Error>(directory)
    };
    clap_mangen::generate_to(Args::command(), of("man1")?)?;
    for (name, shell) in [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish)] {
        generate_to(shell, &mut Args::command(), "cccctl", of(name)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_says_what_an_exit_status_means() {
        let dir = tempfile::tempdir().expect("directory");
        write(dir.path()).expect("written");
        let manual = fs::read_to_string(dir.path().join("man1/cccctl.1")).expect("there");
        assert!(manual.contains("Exit status: 0, done") && manual.contains("4, of status"));
        let help = Args::command().render_help().to_string();
        assert!(help.contains("3, of hook: the domain is not to start"), "{help}");
    }
}
