// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Changes of settings on the command line: an option for each setting of a table.
use ccc_settings::{Changes, Fault, Field, RATE, Table};
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches};

/// Name of the options' group, which a command can require.
pub const OPTIONS: &str = "changes";

/// What the options say; what is left out stays as it is.
#[derive(Debug)]
pub struct Options<T>(pub Changes<T>);

impl<T: Table + 'static> Args for Options<T> {
    fn augment_args(command: Command) -> Command {
        let names = T::fields().iter().map(|field| &field.name);
        let group = ArgGroup::new(OPTIONS).args(names).multiple(true);
        command.args(T::fields().iter().map(option::<T>)).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Options::<T>::augment_args(command)
    }
}

impl<T> Options<T> {
    /// As they are said on a command line, each after a space.
    pub fn said(&self) -> String {
        let said = |(name, text): (&str, String)| format!(" --{} {text}", long(name));
        self.0.texts().map(said).collect()
    }
}

/// An option's name.  The text of a rate has its unit, so its name needs none: `--cap 10gbit`.
fn long(name: &str) -> String {
    name.strip_suffix(RATE).unwrap_or(name).replace('_', "-")
}

fn option<T: Table + 'static>(field: &'static Field) -> Arg {
    let help = format!("{}: {}", field.description(), field.expected_text());
    let name = field.name.as_str();
    let parse = move |text: &str| {
        let mut changes = Changes::<T>::default();
        let wrong = |fault: Fault| format!("expected {}", fault.expected);
        changes.set_text(name, text).map(|()| changes).map_err(wrong)
    };
    // A number below 0 is a value that is told to be wrong, and no option.
    let arg = Arg::new(name).value_parser(parse).help(help).long(long(name));
    match name.strip_suffix(RATE) {
        // With its unit it is no number to clap.
        Some(rate) => arg.alias(name.replace('_', "-")).value_name(rate).allow_hyphen_values(true),
        None => arg.allow_negative_numbers(true),
    }
}

impl<T: Table + 'static> FromArgMatches for Options<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Options<T>, clap::Error> {
        let mut options = Options(Changes::default());
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for field in T::fields() {
            let said = matches.get_one::<Changes<T>>(&field.name);
            said.into_iter().for_each(|changes| self.0.then(changes.clone()));
        }
        Ok(())
    }
}
