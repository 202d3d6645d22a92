// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Which tenants there are to be: the daemon's settings are the one place that says so.
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::places::Place;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// No answer is longer.
const ANSWER_MAX: u64 = 64 << 20;

/// A tenant as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What of this host it is.
    pub place: Place,
    /// Where the daemon listens for it.
    pub socket: PathBuf,
}

/// The tenants of this host that the daemon knows, by their names.
pub fn ask(control: &Path) -> Result<BTreeMap<String, Wanted>> {
    let mut stream = UnixStream::connect(control)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /v1/vms HTTP/1.1\r\nHost: ccc\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    read(&answer)
}

fn read(answer: &str) -> Result<BTreeMap<String, Wanted>> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the daemon broke off")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "the daemon answers {status}");
    let answer: Value = serde_json::from_str(body).context("the daemon does not speak JSON")?;
    let vms = answer["vms"].as_array().into_iter().flatten();
    let tenant = |vm: &Value| {
        let place = Place::parse(vm["tenant"].as_str()?)?;
        let socket = PathBuf::from(vm["socket"].as_str()?);
        Some((vm["name"].as_str()?.to_owned(), Wanted { place, socket }))
    };
    Ok(vms.filter_map(tenant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_are_no_tenants_of_the_host() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"vms\": [\
            {\"name\": \"a\", \"socket\": \"/a\", \"tenant\": null},\
            {\"name\": \"web\", \"socket\": \"/web\", \"tenant\": \"netns:w\"}]}";
        let wanted = read(answer).expect("an answer");
        let web = Wanted { place: Place::Netns("w".to_owned()), socket: "/web".into() };
        assert_eq!(wanted, BTreeMap::from([("web".to_owned(), web)]));
        assert!(read("HTTP/1.1 500 x\r\n\r\n{}").is_err());
        assert!(read("").is_err());
    }
}
